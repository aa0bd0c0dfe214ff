"""A signature's calls have operands with its bytes, in every possible layout."""

from __future__ import annotations

import pytest

from presim.cost.profile.calls import calls, is_known
from presim.cost.profile.calls.call import Call, Tensor, Tensors
from presim.trace.signatures import (
    Elementwise,
    Index,
    MemoryBound,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Softmax,
    Sort,
)

COUNT = 1 << 20
SIZE = 4 * COUNT


def tensors(call: Call) -> list[tuple[str, tuple[int, ...]]]:
    """Types and shapes of a call's single tensors, in order."""
    return [(each.dtype, each.shape) for each in call.arguments if isinstance(each, Tensor)]


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (Elementwise(SIZE, SIZE, COUNT, "float32", operator="aten::mul"), [[("float32", (COUNT,))]]),
        (Elementwise(2 * SIZE, SIZE, COUNT, "float32", operator="aten::mul"), [[("float32", (COUNT,))] * 2]),
        (
            Elementwise(SIZE + SIZE // 2, SIZE, COUNT, "float32", operator="aten::mul"),
            [[("float32", (COUNT,)), ("bfloat16", (COUNT,))]],
        ),
        (
            Elementwise(SIZE + 4, SIZE, COUNT, "float32", operator="aten::mul"),
            [[("float32", (COUNT,)), ("float32", ())]],
        ),
        (
            Elementwise(SIZE + 4096, SIZE, COUNT, "float32", operator="aten::mul"),
            [
                [("float32", (1024, 1024)), ("float32", (1024,))],
                [("float32", (1024, 1024)), ("float32", (1024, 1))],
            ],
        ),
        (
            Elementwise(SIZE + 4096, SIZE, COUNT, "float32", operator="aten::mul", strided_operands=3),
            [
                [("float32", (1024, 1024)), ("float32", (1024,))],
                [("float32", (1024, 1024)), ("float32", (1024, 1))],
            ],
        ),
        (
            Elementwise(SIZE // 2, SIZE, COUNT, "float32", operator="aten::copy_", cast_operands=2),
            [[("float32", (COUNT,)), ("bfloat16", (COUNT,))]],
        ),
        (
            Elementwise(SIZE // 2, SIZE // 4, COUNT, "float8_e4m3fn", operator="aten::copy_"),
            [[("float8_e4m3fn", (COUNT,)), ("bfloat16", (COUNT,))]],
        ),
        (
            Reduction(SIZE, 4096, COUNT, "float32", operator="aten::sum"),
            [[("float32", (1024, 1024))], [("float32", (1024, 1024))]],
        ),
        (Reduction(SIZE, 4, COUNT, "float32", operator="aten::amax"), [[("float32", (COUNT,))]]),
        (
            Index(SIZE // 16 + 8 * 128, SIZE // 16, COUNT, "float32", operator="aten::gather"),
            [[("float32", (2048, 512)), ("int64", (128,))]],
        ),
        (
            Index(
                SIZE // 2 + 8 * 1024, SIZE // 2, COUNT // 2, "int64", operator="aten::gather"
            ),  # smaller than its rows
            [[("float32", (512, 512)), ("int64", (1024,))], [("float32", (128, 512)), ("int64", (1024,))]],
        ),
        (Random(SIZE, SIZE + COUNT, COUNT, "float32", operator="aten::native_dropout"), [[("float32", (COUNT,))]]),
        (
            Softmax(1024 * 12, 8, COUNT, "float32", operator="aten::nll_loss_forward"),
            [[("float32", (1024, 1024)), ("int64", (1024,))]],
        ),
    ],
)
def test_operands_follow_from_the_bytes(
    signature: MemoryBound, expected: list[list[tuple[str, tuple[int, ...]]]]
) -> None:
    assert [tensors(call) for call in calls(signature)] == expected


@pytest.mark.parametrize(
    "signature",
    [
        Elementwise(SIZE, SIZE, COUNT, "float32", operator="aten::copy_"),  # strided, or no kernel at all
        Elementwise(4096, SIZE, COUNT, "float32", operator="aten::mul"),  # both operands are spread
        Elementwise(2 * SIZE, SIZE, COUNT, "float32", operator="aten::mul", strided_operands=3),  # layouts are not told
        Elementwise(SIZE + 4, SIZE, COUNT, "int64", operator="aten::gelu"),
        Reduction(SIZE, 12, COUNT, "float32", operator="aten::sum"),  # three results of a power of two
        Reduction(COUNT, 8, COUNT, "bool", operator="aten::sum"),  # cast first, by another kernel
        Index(0, 0, 0, "bfloat16", operator="aten::gather"),
        Optimizer(SIZE, SIZE + 64, COUNT, "float32", 4, "aten::_foreach_mul_"),
        Normalization(SIZE, SIZE, COUNT, "float32", operator="aten::native_layer_norm", row=1000),
    ],
)
def test_ambiguous_bytes_have_no_calls(signature: MemoryBound) -> None:
    assert is_known(signature)
    assert calls(signature) == ()


def test_other_operators_have_no_calls() -> None:
    assert not is_known(Elementwise(8, 8, 1, "float64", operator="aten::roll"))
    assert not is_known(Sort(8, 8, 1, "float32", operator="aten::sort"))


def test_lists_are_whole_chunks_so_that_one_launch_is_enough() -> None:
    """One launch of this PyTorch takes 2,237 chunks of 65,536 elements; other sizes would need more launches."""
    elements = 146551607
    moved = 16 * elements + 4 * 14
    (call,) = calls(Optimizer(moved, moved - 4 * elements, elements, "float32", 14, "aten::_fused_adamw_"))
    parameters = call.arguments[0]
    assert isinstance(parameters, Tensors)
    sizes = [size for (size,) in parameters.shapes]
    assert sum(sizes) == elements
    assert len(sizes) == 14
    assert sum(-(-size // 65536) for size in sizes) == -(-elements // 65536) == 2237


def test_a_share_of_several_launches_matches_up_to_rounding() -> None:
    asked = Optimizer(1173303750, 879977819, 146662966, "bfloat16", 6, "aten::_fused_adamw_")
    assert len(calls(asked)) == 1
    assert calls(Optimizer(1173303850, 879977819, 146662966, "bfloat16", 6, "aten::_fused_adamw_")) == ()


def test_fsdp_s_copies_are_set_up_for_few_and_many_ranks() -> None:
    gathered = calls(Elementwise(SIZE, SIZE, COUNT, "float32", operator="aten::split_with_sizes_copy"))
    assert [tensors(call) for call in gathered] == [[("float32", (8, COUNT // 8))], [("float32", (64, COUNT // 64))]]
    reduced = calls(Elementwise(SIZE // 2, SIZE, COUNT, "bfloat16", 4, "aten::_chunk_cat"))
    sent = [dict(call.options)["out"] for call in reduced]
    assert sent == [Tensor("float32", (8, COUNT // 8)), Tensor("float32", (64, COUNT // 64))]


def test_the_kernel_before_softmax_s_gradient_is_recorded() -> None:
    (call,) = calls(Softmax(2 * SIZE, SIZE, COUNT, "float32", operator="aten::_softmax_backward_data", row=1024))
    assert call.first is not None
    assert call.first.operator == "aten::mul"
    (log,) = calls(Softmax(2 * SIZE, SIZE, COUNT, "float32", operator="aten::_log_softmax_backward_data", row=1024))
    assert log.first is None


def test_each_kernel_of_a_norm_s_gradients_is_called_separately() -> None:
    read = 2 * SIZE + 8 * 1024 + 2 * 4096
    norm = "aten::native_layer_norm_backward"
    (of_input,) = calls(Normalization(read, SIZE + 2 * 4096, COUNT, "float32", operator=norm, row=1024))
    (of_weights,) = calls(Normalization(read, 2 * 4096, COUNT, "float32", operator=norm, row=1024))
    assert (of_input.arguments[-1], of_weights.arguments[-1]) == ((True, False, False), (False, True, True))
