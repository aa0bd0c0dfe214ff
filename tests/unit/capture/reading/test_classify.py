"""From a launch and its operator to a signature."""

from __future__ import annotations

import msgspec
import pytest

from presim.capture.reading.classify import classify_launch, memory_family
from presim.capture.reading.launch_operators import LaunchingOperator, parse_operator
from presim.capture.reading.log import parse
from presim.trace.signatures import (
    Attention,
    Elementwise,
    Fused,
    Gemm,
    GroupedGemm,
    Index,
    Kernel,
    MemoryBound,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Signature,
    Softmax,
    Sort,
)

KERNEL = "kernel name=_Zkernel grid=8,1,1 block=128,1,1"


def operator(name: str, inputs: str = "", outputs: str = "", scalars: str = "") -> LaunchingOperator:
    return parse_operator(parse(f"op name={name} in={inputs} out={outputs} args={scalars}"))


def launched(by: LaunchingOperator | None, kernel: str = KERNEL, share: float = 1.0) -> Signature:
    return classify_launch(parse(kernel), by, share)


def traffic(by: LaunchingOperator) -> tuple[int, int]:
    """Bytes read and written."""
    signature = launched(by)
    assert isinstance(signature, MemoryBound)
    return signature.bytes_read, signature.bytes_written


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("add", Elementwise),
        ("silu_backward", Elementwise),
        ("sum", Reduction),
        ("var_mean", Reduction),
        ("_fused_rms_norm", Normalization),
        ("native_layer_norm_backward", Normalization),
        ("cudnn_batch_norm", Normalization),
        ("_log_softmax_backward_data", Softmax),
        ("nll_loss_forward", Softmax),
        ("topk", Sort),
        ("argsort", Sort),
        ("embedding_dense_backward", Index),
        ("index_put", Index),
        ("normal", Random),
        ("native_dropout", Random),
        ("_fused_adamw", Optimizer),
        ("_foreach_addcdiv", Optimizer),
        ("_foreach_norm", Optimizer),
    ],
)
def test_the_family_of_memory_bound_work_follows_from_the_name(name: str, family: type[MemoryBound]) -> None:
    assert memory_family(name) is family


def test_short_words_are_families_only_as_whole_names() -> None:
    """`sum` within `cumsum_like` and `max` within `max_pool2d` do not count."""
    assert memory_family("max_pool2d_with_indices") is Elementwise
    assert memory_family("minimum") is Elementwise


def test_an_operation_reads_its_inputs_and_writes_its_outputs_once() -> None:
    assert traffic(operator("aten::add", "Float[1024],Float[1024]", "Float[1024]")) == (8192, 4096)


def test_tensors_on_the_cpu_move_no_device_memory() -> None:
    assert traffic(operator("aten::mul", "Float[1024],cpu:Double[]", "Float[1024]")) == (4096, 4096)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (operator("aten::zero_", "Float[1024]", "Float[1024]"), (0, 4096)),
        (operator("aten::copy_", "Float[1024],BFloat16[1024]", "Float[1024]"), (2048, 4096)),
        (operator("aten::normal_", "Float[1024]", "Float[1024]"), (0, 4096)),
        (operator("aten::add_", "Float[1024],Float[1024]", "Float[1024]"), (8192, 4096)),
    ],
    ids=lambda value: value.name if isinstance(value, LaunchingOperator) else "",
)
def test_an_operator_that_overwrites_its_first_input_does_not_read_it(
    by: LaunchingOperator, expected: tuple[int, int]
) -> None:
    assert traffic(by) == expected


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        # parameters, gradients, both moments; steps are a list of scalars
        (operator("aten::_fused_adamw_", "Float{9;1000},Float{9;1000},Float{9;1000},Float{9;1000}"), (16000, 12000)),
        (operator("aten::_foreach_add_", "Float{9;1000},Float{9;1000}"), (8000, 4000)),
        (operator("aten::_foreach_mul_", "Float{9;1000},Float[]"), (4000, 4000)),
        (operator("aten::_foreach_sqrt", "Float{9;1000}", "Float{9;1000}"), (4000, 4000)),
        (operator("aten::_foreach_copy_", "BFloat16{9;1000},Float{9;1000}"), (4000, 2000)),
        (operator("aten::_foreach_zero_", "Float{9;1000}"), (0, 4000)),
    ],
    ids=lambda value: value.name if isinstance(value, LaunchingOperator) else "",
)
def test_multi_tensor_operators_write_their_argument_lists(by: LaunchingOperator, expected: tuple[int, int]) -> None:
    assert isinstance(launched(by), Optimizer)
    assert traffic(by) == expected


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (operator("aten::embedding", "Float[128256;64],Long[10]", "Float[10;64]"), (2560 + 80, 2560)),
        (operator("aten::index_select", "Float[1000;8],Long[3]", "Float[3;8]"), (96 + 24, 96)),
        (operator("aten::index_add_", "Float[1000;8],Long[3],Float[3;8]", "Float[1000;8]"), (96 + 24, 96)),
        (operator("aten::flip", "Float[1000]", "Float[1000]"), (4000, 4000)),
        (operator("aten::roll", "Float[10;10]", "Float[10;10]"), (400, 400)),
    ],
    ids=lambda value: value.name if isinstance(value, LaunchingOperator) else "",
)
def test_indexing_moves_only_the_addressed_rows(by: LaunchingOperator, expected: tuple[int, int]) -> None:
    assert traffic(by) == expected


def test_a_bag_reads_each_of_its_rows() -> None:
    by = operator("aten::_embedding_bag", "Float[1000;8],Long[60],Long[20]", "Float[20;8],Long[60]")
    assert traffic(by) == (60 * 32 + 480, 640 + 480)


def test_launches_of_one_operator_share_its_bytes() -> None:
    by = operator("aten::sum", "Float[1000000]", "Float[]")
    parts = [launched(by, share=share) for share in (0.75, 0.25)]
    assert [part.bytes_read for part in parts if isinstance(part, Reduction)] == [3_000_000, 1_000_000]


def test_a_kernel_of_an_unknown_operator_keeps_its_launch() -> None:
    assert launched(None) == Kernel("_Zkernel", (8, 1, 1), (128, 1, 1))
    pause = "kernel name=_ZN2at4cuda11spin_kernelEl grid=1,1,1 block=1,1,1"  # touches nothing of its operator's
    fused = operator("symm_mem::fused_matmul_reduce_scatter", "BFloat16[512;1024]")
    assert launched(fused, pause) == Kernel("_ZN2at4cuda11spin_kernelEl", (1, 1, 1), (1, 1, 1), operator=fused.name)
    assert launched(operator("c10d::barrier")) == Kernel("_Zkernel", (8, 1, 1), (128, 1, 1), operator="c10d::barrier")


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        ("name=cusolverDnXgeqrf m=300 n=300", 36_000_000),  # 4/3 n^3
        ("name=cusolverDnXgeqrf m=600 n=300", 90_000_000),  # 2 m n^2 - 2/3 n^3
        ("name=cusolverDnSgetrf m=300 n=300", 18_000_000),  # 2/3 n^3
        ("name=cusolverDnSorgqr m=300 n=300 k=300", 36_000_000),
        ("name=cusolverDnXpotrf n=300", 9_000_000),
        ("name=cusolverDnXsyevBatched n=300 batch=2", 2 * 243_000_000),
        ("name=cusolverDnDgesvdj m=300 n=300", 567_000_000),
        ("name=cublasStrsm_v2 m=300 n=300", 27_000_000),
        ("name=cusolverDnNewRoutine", 0),
    ],
)
def test_a_solver_is_not_memory_bound(call: str, flops: int) -> None:
    """Its time does not follow from its bytes, so it stays a kernel whose price is a listed guess."""
    by = operator("aten::linalg_qr", "Float[300;300]", "Float[300;300]")
    name = call.split()[0].removeprefix("name=")
    assert launched(by, f"kernel {call} grid=0,0,0 block=0,0,0") == Kernel(
        name, (1, 1, 1), (1, 1, 1), bytes=720_000, operator="aten::linalg_qr", flops=flops
    )


def test_a_library_call_has_its_own_signature_whatever_its_operator() -> None:
    gemm = "gemm m=4 n=2 k=3 batch=1 a=bf16 b=bf16 d=bf16 compute=f32 transa=N transb=N beta=0 epilogue=none"
    assert isinstance(launched(operator("aten::addmm", "BFloat16[2;3]"), gemm), Gemm)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_an_attention_kernel_takes_the_whole_operator(share: float) -> None:
    """The operator's other, small kernels are memory-bound and share its bytes."""
    sizes = "BFloat16[2;4096;32;128],BFloat16[2;4096;8;128],BFloat16[2;4096;8;128]"
    by = operator("aten::_flash_attention_forward", sizes, "BFloat16[2;4096;32;128]", "4096,4096,1,0")
    found = launched(by, "kernel name=_ZN5flash16flash_fwd_kernel grid=8,1,1 block=128,1,1", share)
    assert found == Attention("forward", 2, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "flash")
    assert isinstance(launched(by, share=share), Elementwise)


PACKED = "BFloat16[8192;32;128],BFloat16[8192;8;128],BFloat16[8192;8;128],Int[17],Int[17]"


def test_packed_sequences_are_equally_long() -> None:
    """Their lengths are on the device; all tokens and the number of sequences are known."""
    by = operator("aten::_flash_attention_forward", PACKED, "BFloat16[8192;32;128]", "4096,4096,1,0")
    found = launched(by, "kernel name=_ZN5flash16flash_fwd_kernel grid=8,1,1 block=128,1,1")
    assert found == Attention("forward", 16, 32, 8, 512, 512, 128, 128, True, "bfloat16", "flash")
    gradient = operator("aten::_flash_attention_backward", f"BFloat16[8192;32;128],{PACKED}", "", "4096,4096,1,0")
    kernel = "kernel name=_ZN5flash23flash_bwd_dq_dk_dv_loop grid=8,1,1 block=128,1,1"
    assert launched(gradient, kernel) == msgspec.structs.replace(found, direction="backward")


@pytest.mark.parametrize(("longest", "length"), [(4096, 512), (256, 256)])
def test_cudnn_s_packed_sequences_have_all_tokens_and_no_more(longest: int, length: int) -> None:
    by = operator("aten::_cudnn_attention_forward", PACKED, "BFloat16[8192;32;128]")
    graph = (
        f"attention direction=forward batch=16 heads=32 kv_heads=8 q_len={longest} kv_len={longest} head_dim=128 "
        "v_head_dim=128 causal=1 dropout=0 dtype=bf16 backend=cudnn ragged=1"
    )
    found = launched(by, graph)
    assert found == Attention("forward", 16, 32, 8, length, length, 128, 128, True, "bfloat16", "cudnn")


@pytest.mark.parametrize(
    ("left", "right", "rows", "columns", "depth"),
    [
        ("4096;512", "8;512;1024", 4096, 1024, 512),
        ("512;4096", "4096;1024", 8 * 512, 1024, 512),  # gradients of weights: tokens of all groups are summed over
        ("8;512;64", "64;4096", 8 * 512, 512, 64),
        ("8;512;64", "8;64;128", 8 * 512, 128, 64),
    ],
)
def test_a_grouped_product_follows_from_its_matrices(
    left: str, right: str, rows: int, columns: int, depth: int
) -> None:
    """All rows on the left and one matrix per group on the right, or matrices divided among the groups."""
    by = operator("aten::_grouped_mm", f"BFloat16[{left}],BFloat16[{right}],Int[8]", "BFloat16[4096;1024]")
    kernel = "kernel name=_ZN7cutlass13device_kernelE grid=132,1,1 block=384,1,1"
    assert launched(by, kernel) == GroupedGemm(8, rows, columns, depth, "bfloat16")


def test_the_kernel_that_prepares_a_grouped_product_is_not_one() -> None:
    """One block that writes the groups' pointers, in a kernel whose name has CUTLASS's types."""
    by = operator("aten::_grouped_mm", "BFloat16[4096;512],BFloat16[8;512;1024],Int[8]", "BFloat16[4096;1024]")
    kernel = "kernel name=_ZN2at4cuda6detail25prepare_grouped_gemm_dataIN7cutlass10bfloat16_tE grid=1,1,1 block=8,1,1"
    assert not isinstance(launched(by, kernel), GroupedGemm)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        # 6 rows of 4 numbers are added to a table of 1000 rows, which was zeroed by a kernel of its own
        (operator("aten::embedding_dense_backward", "Float[6;4],Long[6]", "Float[1000;4]"), (96 + 48, 96)),
        # one number of each of 6 rows of 1000 is looked at, or set
        (operator("aten::nll_loss_forward", "Float[6;1000],Long[6]", "Float[],Float[]"), (24 + 48, 8)),
        (operator("aten::nll_loss_backward", "Float[],Float[6;1000],Long[6]", "Float[6;1000]"), (24 + 48, 24)),
    ],
)
def test_embedding_gradients_and_losses_move_only_their_rows(by: LaunchingOperator, expected: tuple[int, int]) -> None:
    assert traffic(by) == expected


def test_a_generated_kernel_moves_its_tensors_once() -> None:
    by = operator("triton::triton_poi_fused_add_0", "bfloat16[8;4],bfloat16[8;4]", "bfloat16[8;4]")
    assert launched(by) == Fused("triton_poi_fused_add_0", 128, 64, 32, "bfloat16")


def test_a_generated_kernel_has_its_instructions_and_transposed_results() -> None:
    text = "op name=triton::triton_poi_0 in=bfloat16[8;4] out=float8_e4m3fn[8;4],float8_e4m3fn[4;8] args="
    by = parse_operator(parse(f"{text} instructions=700,30,5 tiled=1"))
    assert launched(by) == Fused("triton_poi_0", 64, 64, 32, "bfloat16", plain=700, special=30, wide=5, across_bytes=1)
    assert launched(parse_operator(parse(text))) == Fused("triton_poi_0", 64, 64, 32, "bfloat16")


def test_a_hand_written_triton_kernel_keeps_its_launch_and_the_bytes_of_its_tensors() -> None:
    by = operator("triton::my_kernel", "float32[8;4],float32[8;4]")
    assert launched(by) == Kernel("_Zkernel", (8, 1, 1), (128, 1, 1), bytes=256, operator="triton::my_kernel")


def test_combining_split_keys_is_not_counted_as_attention_again() -> None:
    shapes = "BFloat16[3;256;8;64],BFloat16[3;1024;8;64],BFloat16[3;1024;8;64]"
    by = operator("aten::_flash_attention_forward", shapes, "BFloat16[3;256;8;64]", "256,1024,0,0")
    assert isinstance(launched(by, KERNEL.replace("_Zkernel", "flash_fwd_splitkv_kernel")), Attention)
    assert isinstance(launched(by, KERNEL.replace("_Zkernel", "flash_fwd_splitkv_combine_kernel")), Elementwise)


def test_a_softmax_has_rows_and_a_loss_has_none() -> None:
    softmax = launched(operator("aten::_softmax", "Float[8;16;2048;2048]", "Float[8;16;2048;2048]"))
    loss = launched(operator("aten::nll_loss_forward", "Float[4096;32000],Long[4096]", "Float[]"))
    assert isinstance(softmax, Softmax)
    assert isinstance(loss, Softmax)
    assert (softmax.row, loss.row) == (2048, 0)
