"""Memory traffic of the kernels of a normalisation, which make several passes over the same tensor.

One kernel reads the tensor for statistics, a second one reads it again and writes the result; weight gradients read
again what the input gradient reads. Names are those of PyTorch's kernels (aten/src/ATen/native/cuda: Normalization,
group_norm_kernel, layer_norm_kernel).
"""

from __future__ import annotations

import math

from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.capture.reading.log import Descriptor
from presim.trace.signatures import Normalization

_ONLY_READ = ("collect_statistics", "RowwiseMoments", "backward_reduce", "ComputeInternalGradients", "GammaBeta")
_PER_CHANNEL = ("update_stats", "FusedParams", "cuComputeGradGammaBeta")
_READ_TWICE = ("batch_norm_backward_kernel",)  # sums, then the gradient, in one launch
_ELEMENTS_PER_THREAD = 32  # the maximum in PyTorch's kernels


def signature(work: Descriptor, operator: LaunchingOperator) -> Normalization | None:
    """The signature of a kernel with known passes; None for any other."""
    tensors = [operand for operand in operator.inputs + operator.outputs if operand.on_device]
    largest = max(tensors, key=lambda operand: operand.elements)
    kernel = work.fields.get("name", "")
    passes = _passes(kernel, operator, work, largest)
    if passes is None:
        return None
    reads, writes = passes
    sizes = [operand.elements for operand in tensors]
    elements = largest.elements if reads else max((size for size in sizes if size < largest.elements), default=1)
    return Normalization(
        bytes_read=_bytes(operator.inputs, largest, reads),
        bytes_written=_bytes(operator.outputs, largest, writes),
        elements=elements,
        dtype=largest.dtype,
        operator=operator.name,
        row=operator.row,
    )


def _passes(kernel: str, operator: LaunchingOperator, work: Descriptor, largest: Operand) -> tuple[int, int] | None:
    """How often a kernel reads and writes tensors of the largest size."""
    if any(part in kernel for part in _PER_CHANNEL):
        return 0, 0
    if "group_norm" in operator.base_name and ("GammaBeta" in kernel or _is_small(work, largest)):
        return 0, 0
    if any(part in kernel for part in _ONLY_READ):
        return 1, 0
    if any(part in kernel for part in _READ_TWICE):
        return 2, 1
    read_and_written_once = (
        "batch_norm_transform_input",
        "batch_norm_backward_elemt",
        "group_norm_kernel",
        "layer_norm",
    )
    return (1, 1) if any(part in kernel for part in read_and_written_once) else None


def _is_small(work: Descriptor, largest: Operand) -> bool:
    """Whether there are too few threads for the whole tensor; reductions also have few, but are known by name."""
    threads = math.prod(work.numbers("grid") + work.numbers("block"))
    return "elementwise" in work.fields.get("name", "") and threads * _ELEMENTS_PER_THREAD < largest.elements


def _bytes(operands: tuple[Operand, ...], largest: Operand, times: int) -> int:
    """Bytes with the largest operands counted ``times`` and the small ones once."""
    device_operands = [operand for operand in operands if operand.on_device]
    return sum(operand.bytes * (times if operand.elements == largest.elements else 1) for operand in device_operands)
