"""Passes of normalisations over their tensors, by the names of PyTorch's kernels."""

from __future__ import annotations

import pytest

from presim.capture.reading.launch_operators import LaunchingOperator, parse_operator
from presim.capture.reading.log import parse
from presim.capture.reading.norm_kernels import signature

SIZE, CHANNELS = 4 * 8 * 64 * 16 * 16, 4 * 64  # bytes of Float[8;64;16;16], and of one number a channel
STATISTICS = 8 * 4 * 4  # one number a sample and group


def operator(name: str, inputs: str, outputs: str) -> LaunchingOperator:
    return parse_operator(parse(f"op name=aten::{name} in={inputs} out={outputs} args="))


X, C, G = "Float[8;64;16;16]", "Float[64]", "Float[8;4]"
BATCH = operator("native_batch_norm", f"{X},{C},{C}", f"{X},{C},{C}")
BATCH_BACKWARD = operator("native_batch_norm_backward", f"{X},{X},{C}", f"{X},{C},{C}")
GROUP = operator("native_group_norm", f"{X},{C},{C}", f"{X},{G},{G}")
GROUP_BACKWARD = operator("native_group_norm_backward", f"{X},{X},{G},{G},{C}", f"{X},{C},{C}")
LAYER_BACKWARD = operator("native_layer_norm_backward", f"{X},{X},{C},{C}", f"{X},{C},{C}")


@pytest.mark.parametrize(
    ("by", "kernel", "threads", "reads", "writes"),
    [
        (BATCH, "batch_norm_collect_statistics_kernel", 64 * 512, 1, 0),
        (BATCH, "unrolled_elementwise_batch_norm_update_stats", 64, 0, 0),
        (BATCH, "batch_norm_transform_input_channels_last_kernel", 4096, 1, 1),
        (BATCH_BACKWARD, "batch_norm_backward_kernel", 64 * 512, 4, 1),
        (BATCH_BACKWARD, "batch_norm_backward_reduce_channels_last_kernel", 4096, 2, 0),
        (BATCH_BACKWARD, "batch_norm_backward_elemt_channels_last_kernel", 4096, 2, 1),
        (GROUP, "group_norm_kernel_RowwiseMomentsCUDAKernel", 8 * 4 * 512, 1, 0),
        (GROUP, "group_norm_kernel_ComputeFusedParamsCUDAKernel", 512, 0, 0),
        (GROUP, "elementwise_kernel_group_norm_kernel_cu_GroupNorm", 32768, 1, 1),
        (GROUP_BACKWARD, "group_norm_kernel_ComputeInternalGradientsCUDAKernel", 512, 2, 0),
        (GROUP_BACKWARD, "elementwise_kernel_group_norm_kernel_cu_GroupNormBackward", 128, 0, 0),
        (GROUP_BACKWARD, "elementwise_kernel_group_norm_kernel_cu_GroupNormBackward", 32768, 2, 1),
        (GROUP_BACKWARD, "group_norm_kernel_GammaBetaBackwardCUDAKernel1", 512, 0, 0),
        (LAYER_BACKWARD, "layer_norm_kernel_GammaBetaBackwardCUDAKernelTemplate", 512, 2, 0),
        (LAYER_BACKWARD, "layer_norm_grad_input_kernel_vectorized", 512, 2, 1),
    ],
)
def test_each_kernel_makes_its_passes_over_the_large_tensors(
    by: LaunchingOperator, kernel: str, threads: int, reads: int, writes: int
) -> None:
    """Other operands have one number per channel or group."""
    found = signature(parse(f"kernel name={kernel} grid={threads // 64},1,1 block=64,1,1"), by)
    assert found is not None
    assert 0 <= found.bytes_read - reads * SIZE <= 3 * CHANNELS + 2 * STATISTICS
    assert 0 <= found.bytes_written - writes * SIZE <= 2 * CHANNELS + 2 * STATISTICS


def test_other_kernels_have_no_norm_signature() -> None:
    assert signature(parse("kernel name=reduce_kernel grid=1,1,1 block=64,1,1"), BATCH) is None


def test_a_norm_over_the_last_dimension_has_rows() -> None:
    """A layer norm normalises the last dimension; norms over samples or channels have no rows."""
    layer = signature(
        parse("kernel name=layer_norm_grad_input_kernel_vectorized grid=8,1,1 block=64,1,1"), LAYER_BACKWARD
    )
    batch = signature(parse("kernel name=batch_norm_backward_kernel grid=8,1,1 block=64,1,1"), BATCH_BACKWARD)
    assert layer is not None
    assert batch is not None
    assert (layer.row, batch.row) == (16, 0)
