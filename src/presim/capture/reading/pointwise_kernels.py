"""Which of PyTorch's kernels an elementwise operator launched, by the kernel's name.

PyTorch has three (aten/src/ATen/native/cuda/CUDALoops.cuh). ``vectorized_elementwise_kernel`` loads several elements at
once. ``unrolled_elementwise_kernel`` casts each element by itself, where data types differ. ``elementwise_kernel``
computes an address for each element and tensor, where tensors are expanded or not contiguous.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.capture.reading.log import Descriptor
from presim.capture.reading.traffic import moved_operands

# As captures have it (mangled, led by its length) and as profiles have it. Longer names end with the same words.
_STRIDED = re.compile(r"(?:\D18|\bnative::)elementwise_kernel[I<]")
_CASTING = "unrolled_elementwise_kernel"
_OWN_COPIES = (  # types read and written (aten/src/ATen/native/cuda/Copy.cu)
    ({"float32"}, {"bfloat16", "float16"}),
    ({"float32", "bfloat16", "float16"}, {"float8_e4m3fn", "float8_e5m2"}),
)
_NO_ITERATOR = ("cat", "stack", "tril", "triu", "roll", "flip", "arange", "repeat_interleave")  # kernels of their own


def element_operands(work: Descriptor, operator: LaunchingOperator) -> dict[str, int]:
    """Operands that the kernel accesses element by element, as fields of `Elementwise`; none if it is vectorised."""
    kernel = work.fields.get("name", "")
    inputs, outputs = moved_operands(operator)
    operands = sum(operand.tensors for operand in inputs + outputs)
    if _STRIDED.search(kernel):
        return {"strided_operands": operands}
    return {"cast_operands": operands} if _CASTING in kernel else {}


def operands_by_layout(operator: LaunchingOperator) -> dict[str, int]:
    """The same from shapes, strides and data types, where no kernel was launched: PyTorch's rule for the kernel.

    None for operators that do not visit the elements of a result and of what is expanded to it, such as pooling.
    """
    inputs, outputs = moved_operands(operator)
    tensors = inputs + outputs
    is_iterator = operator.name.startswith("aten::") and operator.base_name not in _NO_ITERATOR
    if not is_iterator or any(tensor.tensors > 1 for tensor in tensors) or not _expands(inputs, outputs):
        return {}
    if not _is_linear(tensors):
        return {"strided_operands": len(tensors)}
    return {"cast_operands": len(tensors)} if _is_cast(operator, inputs, outputs) else {}


def casts_elements(read: Set[str], written: Set[str]) -> bool:
    """Whether a copy between data types casts each element by itself; those to 8 and 16 bits have kernels of their own.

    >>> casts_elements({"bfloat16"}, {"float32"}), casts_elements({"float32"}, {"bfloat16"})
    (True, False)
    """
    return read != written and not any(read <= sources and written <= targets for sources, targets in _OWN_COPIES)


def _expands(inputs: Sequence[Operand], outputs: Sequence[Operand]) -> bool:
    """Whether all results have one shape, to which all inputs can be expanded."""
    if len({tensor.shape for tensor in outputs}) != 1:
        return False
    result = outputs[0].shape
    return all(
        len(tensor.shape) <= len(result)
        and all(size in (1, result_size) for size, result_size in zip(reversed(tensor.shape), reversed(result)))
        for tensor in inputs
    )


def _is_linear(tensors: Sequence[Operand]) -> bool:
    """Whether all tensors have one shape and one dense order of elements, so that one index serves them all."""
    shapes = {tensor.shape for tensor in tensors}
    layouts = {
        tuple((size, stride) for size, stride in zip(tensor.shape, tensor.strides) if size > 1) for tensor in tensors
    }
    if len(shapes) > 1 or len(layouts) > 1:
        return False
    expected = 1
    for size, stride in sorted(next(iter(layouts), ()), key=lambda dimension: (dimension[1], dimension[0])):
        if stride != expected:
            return False
        expected *= size
    return True


def _is_cast(operator: LaunchingOperator, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> bool:
    """Whether elements are cast as they are loaded or stored; copies to 8 and 16 bits have kernels of their own."""
    read, written = ({tensor.dtype for tensor in tensors} for tensors in (inputs, outputs))
    if operator.base_name == "copy":
        return casts_elements(read, written)
    return len((read | written) - {"bool"}) > 1  # masks and comparisons have functions of their types
