"""What each kernel of a normalisation moves: most of them are several passes over the same tensor.

Statistics read it, a second kernel reads it again and writes the result; gradients of the weights read once more what
the gradient of the input reads. Names are those of PyTorch's own kernels (aten/src/ATen/native/cuda: Normalization,
group_norm_kernel, layer_norm_kernel).
"""

from __future__ import annotations

import math

from presim.capture.reading.log import Descriptor
from presim.capture.reading.operators import Operand, Operator
from presim.trace.signatures import Normalization

_ONLY_READ = ("collect_statistics", "RowwiseMoments", "backward_reduce", "ComputeInternalGradients", "GammaBeta")
_PER_CHANNEL = ("update_stats", "FusedParams", "cuComputeGradGammaBeta")
_READ_TWICE = ("batch_norm_backward_kernel",)  # sums first, then the gradient, in one launch
_ELEMENTS_PER_THREAD = 32  # no kernel of PyTorch's handles more of them in a thread


def signature(work: Descriptor, operator: Operator) -> Normalization | None:
    """The signature of a kernel whose passes are known by its name; None for every other one."""
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


def _passes(kernel: str, operator: Operator, work: Descriptor, largest: Operand) -> tuple[int, int] | None:
    """How often a kernel reads and writes what is as large as the largest tensor."""
    if any(part in kernel for part in _PER_CHANNEL):
        return 0, 0
    if "group_norm" in operator.base_name and ("GammaBeta" in kernel or _is_small(work, largest)):
        return 0, 0
    if any(part in kernel for part in _ONLY_READ):
        return 1, 0
    if any(part in kernel for part in _READ_TWICE):
        return 2, 1
    known = ("batch_norm_transform_input", "batch_norm_backward_elemt", "group_norm_kernel", "layer_norm")
    return (1, 1) if any(part in kernel for part in known) else None


def _is_small(work: Descriptor, largest: Operand) -> bool:
    """Too few threads to be the kernel that handles the whole tensor; reductions have few, too, and a name."""
    threads = math.prod(work.numbers("grid") + work.numbers("block"))
    return "elementwise" in work.fields.get("name", "") and threads * _ELEMENTS_PER_THREAD < largest.elements


def _bytes(operands: tuple[Operand, ...], largest: Operand, times: int) -> int:
    """Those as large as the largest so many times, the small ones once."""
    here = [operand for operand in operands if operand.on_device]
    return sum(operand.bytes * (times if operand.elements == largest.elements else 1) for operand in here)
