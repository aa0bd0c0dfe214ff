"""Memory traffic of each kernel in Transformer Engine's quantising functions."""

from __future__ import annotations

import pytest

from presim.capture.reading.classify import classify_launch
from presim.capture.reading.launch_operators import parse_operator
from presim.capture.reading.log import parse
from presim.trace.signatures import Elementwise, Normalization, Reduction, Signature

WIDE = "BFloat16[4096;4096]"
SIZE = 4096 * 4096
BOTH = "Byte[4096;4096],Byte[4096;4096]"


def launched(name: str, inputs: str, outputs: str, kernel: str, share: float = 0.5) -> Signature:
    operator = parse_operator(parse(f"op name=te::{name} in={inputs} out={outputs} args="))
    return classify_launch(parse(f"kernel name={kernel} grid=64,1,1 block=64,1,1"), operator, share)


def test_with_current_scaling_a_tensor_is_read_twice() -> None:
    """Once for its maximum, once for the cast (with a transpose on Hopper), whatever the kernels' thread counts."""
    largest = launched("quantize", WIDE, BOTH, "11amax_kernelILi16", share=0.9)
    cast = launched("quantize", WIDE, BOTH, "cast_transpose_optimized_kernel", share=0.1)
    assert isinstance(largest, Reduction)
    assert (largest.bytes_read, largest.bytes_written) == (2 * SIZE, 4)
    assert isinstance(cast, Elementwise)
    assert (cast.bytes_read, cast.bytes_written) == (2 * SIZE, 2 * SIZE)


def test_each_part_has_its_own_amax_kernel() -> None:
    """Rows of four experts, each stored by rows and by columns."""
    piece = "Byte[1024;4096],Byte[4096;1024]"
    largest = launched("split_quantize", WIDE, ",".join([piece] * 4), "11amax_kernelILi16")
    assert isinstance(largest, Reduction)
    assert (largest.bytes_read, largest.elements) == (2 * SIZE // 4, SIZE // 4)


@pytest.mark.parametrize("kernel", ["16zero_amax_kernelEPf", "30compute_scale_from_amax_kernelEPKf"])
def test_kernels_that_prepare_a_scale_move_almost_nothing(kernel: str) -> None:
    found = launched("quantize", WIDE, BOTH, kernel, share=0.0)
    assert isinstance(found, Elementwise)
    assert found.bytes == 0


def test_a_norm_with_a_known_scale_writes_fp8_and_a_kernel_transposes_it() -> None:
    inputs, outputs = f"{WIDE},BFloat16[4096]", f"{BOTH},Float[4096]"
    norm = launched("rmsnorm_fwd", inputs, outputs, "rmsnorm_fwd_tuned_kernel_bf16_bf16_fp8e4m3_fp32")
    transpose = launched("rmsnorm_fwd", inputs, outputs, "transpose_optimized_kernel")
    assert isinstance(norm, Normalization)
    assert (norm.bytes_read, norm.bytes_written) == (2 * SIZE + 8192, SIZE + 16384)
    assert isinstance(transpose, Elementwise)
    assert (transpose.bytes_read, transpose.bytes_written) == (SIZE, SIZE)


def test_a_norm_without_a_scale_writes_the_wider_type_to_be_cast() -> None:
    outputs = f"{BOTH},Float[4096]"
    norm = launched("rmsnorm_fwd", f"{WIDE},BFloat16[4096]", outputs, "rmsnorm_fwd_tuned_kernel_bf16_bf16_bf16_fp32")
    assert norm.bytes_written == 2 * SIZE + 16384  # type: ignore[union-attr]


def test_a_norm_s_gradient_is_one_pass_apart_from_its_final_sums() -> None:
    inputs, outputs = f"{WIDE},{WIDE},Float[4096],BFloat16[4096]", f"{WIDE},BFloat16[4096]"
    whole = launched("rmsnorm_bwd", inputs, outputs, "rmsnorm_bwd_tuned_kernel")
    rest = launched("rmsnorm_bwd", inputs, outputs, "rmsnorm_bwd_finalize_tuned_kernel")
    assert isinstance(whole, Normalization)
    assert whole.bytes > 6 * SIZE
    assert rest.bytes == 0  # type: ignore[union-attr]


def test_other_functions_keep_their_share() -> None:
    found = launched("swiglu", "BFloat16[4096;8192]", "BFloat16[4096;4096]", "amax_kernel")
    assert found.bytes == (4 + 2) * SIZE // 2  # type: ignore[union-attr]
