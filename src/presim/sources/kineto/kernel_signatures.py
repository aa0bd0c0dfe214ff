"""Signatures of profiled kernels, from the launching operator, its shapes and the kernel's name.

Presim's own exports contain the original signatures. PyTorch's profiler records input shapes if started with
``record_shapes=True``; otherwise a kernel is known by name and launch dimensions only.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from presim.capture.reading.classify import classify_launch, memory_family
from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.capture.reading.log import Descriptor
from presim.errors import InputError
from presim.sources.kineto.events import Event, Profile, presim_argument
from presim.system.files import MOST_DIGITS
from presim.trace.signatures import (
    Attention,
    Copy,
    Elementwise,
    Gemm,
    Index,
    Kernel,
    Normalization,
    Signature,
    Softmax,
)

TYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "short": "int16",
    "short int": "int16",
    "bool": "bool",
    "unsigned char": "uint8",
    "signed char": "int8",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul")
_PRODUCT_KERNEL = re.compile(r"gemm|cutlass|nvjet|xmma|wgmma|16816|cublas|gemv|dot_kernel|Cijk", re.IGNORECASE)
_BY_ELEMENT = ("gather", "take", "take_along_dim")  # an index picks an element, not a row
_MOST_ELEMENTS = 1 << 50
_REDUCE = re.compile(r"splitKreduce|reduce_kernel", re.IGNORECASE)
_ATTENTION_KERNEL = re.compile(r"flash|fmha|sdpa|attention", re.IGNORECASE)
_DIRECTIONS = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "peer"}


@dataclasses.dataclass(frozen=True)
class Reader:
    """Determines signatures of profiled work; ``kernels``: number of kernels per operator call in the step."""

    profile: Profile
    kernels: Counter[int]

    def signature(self, event: Event) -> Signature:
        """The signature of a kernel (except collectives), copy or memset."""
        if "presim signature" in event.args:
            return presim_argument(event, "presim signature", Signature)  # type: ignore[arg-type]  # a union
        if event.cat.lower() != "kernel":
            return _copy(event)
        operator = self.operator(event)
        if operator is None:
            return _unclassified(event, "")
        share = 1 / max(1, self.kernels[event.number("External id")])
        return _signature_of_operator(event, operator, share)

    def operator(self, event: Event) -> LaunchingOperator | None:
        """The launching operator with its shapes; None if unknown."""
        call = self.profile.operators.get(event.number("External id"))
        if call is None:
            return None
        inputs = operands(call.args)
        name = call.name if "::" in call.name else f"profile::{call.name}"
        return LaunchingOperator(name, inputs, _outputs(name, inputs), _flags(call.args))

    def name(self, event: Event) -> str:
        """The operator's name, else the kernel's own."""
        call = self.profile.operators.get(event.number("External id"))
        recorded = event.args.get("presim operator")
        return str(recorded) if recorded is not None else call.name if call is not None else ""


def operands(args: dict[str, Any]) -> tuple[Operand, ...]:
    """The tensors among an operator's recorded inputs.

    >>> [(each.dtype, each.shape) for each in operands({"Input Dims": [[4, 8], []], "Input type": ["float", "Scalar"]})]
    [('float32', (4, 8))]
    """
    dims, types = args.get("Input Dims", args.get("Input dims")), args.get("Input type", args.get("Input Type"))
    if not isinstance(dims, list) or not isinstance(types, list):
        return ()
    tensors = []
    for shape, dtype in zip(dims, types):
        if not isinstance(shape, list) or not shape:
            continue
        _check_sizes(shape, args)
        if all(isinstance(dimensions, list) for dimensions in shape):
            elements = sum(_elements(dimensions) for dimensions in shape)
            tensors.append(Operand("float32", elements, True, tensors=len(shape)))
        elif dtype in TYPES and _elements(shape):
            tensors.append(Operand(TYPES[dtype], _elements(shape), True, tuple(shape)))
    return tuple(tensors)


def _elements(shape: Sequence[Any]) -> int:
    return math.prod(size for size in shape if type(size) is int) if shape else 0


def _check_sizes(shape: Sequence[Any], args: dict[str, Any]) -> None:
    """Raise where a size along a dimension is none, such as true, -1 or 2^63."""
    for size in shape:
        if isinstance(size, list):
            _check_sizes(size, args)
        elif type(size) is not int or not 0 <= size <= _MOST_ELEMENTS:
            raise InputError(
                f"an operator (External id {args.get('External id')}) has an input with the size {size!r}; a size is a "
                "whole number from 0: record the profile again"
            )
    if _elements(shape) > _MOST_ELEMENTS:
        raise InputError(f"an operator has an input of the sizes {shape}, which no memory holds; record it again")


def _flags(args: dict[str, Any]) -> tuple[int, ...]:
    """Boolean and integer arguments, as in captures."""
    values = args.get("Concrete Inputs")
    words = {"True": 1, "False": 0}
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
    return tuple(
        words[text] if text in words else int(text)
        for text in texts
        if text in words or (text.isdecimal() and len(text) < MOST_DIGITS)
    )


def _outputs(name: str, inputs: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Assumed outputs, which profiles do not record: like the largest input, of PyTorch's index operators as they say.

    An operator of another library may be named like one (``rotary_embedding``); its operands have another order.
    Ratios of predictions hardly depend on this.
    """
    if not inputs:
        return ()
    base_name = name.split("::")[-1].split(".")[0].rstrip("_")
    family, is_own = memory_family(base_name), name.startswith("aten::")
    if family is Index and is_own and len(inputs) > 1 and inputs[0].shape:
        if base_name in _BY_ELEMENT:
            return (Operand(inputs[0].dtype, inputs[1].elements, True, inputs[1].shape),)
        rows, columns = inputs[1].elements, inputs[0].shape[-1]
        return (Operand(inputs[0].dtype, rows * columns, True, (rows, columns)),)
    if family in (Elementwise, Normalization, Softmax) or (family is Index and not is_own):
        return (max(inputs, key=lambda operand: operand.elements),)
    return ()


def _signature_of_operator(event: Event, operator: LaunchingOperator, share: float) -> Signature:
    base = operator.base_name
    signature: Signature | None = None
    if base in _PRODUCTS and _PRODUCT_KERNEL.search(event.name) and not _REDUCE.search(event.name):
        signature = _product(operator)
    elif "attention" in base and _ATTENTION_KERNEL.search(event.name):
        signature = _attention(operator, event.name)
    if signature is not None:
        return signature
    if not operator.inputs or _PRODUCT_KERNEL.search(event.name) or "conv" in base or "attention" in base:
        return _unclassified(event, operator.name, sum(operand.bytes for operand in operator.inputs))
    try:
        return classify_launch(_descriptor(event), operator, share)
    except (IndexError, ValueError):  # arguments that captures do not have
        return _unclassified(event, operator.name, sum(operand.bytes for operand in operator.inputs))


def _product(operator: LaunchingOperator) -> Gemm | None:
    """``a @ b`` of the last two matrices; for `aten::linear` the second is transposed."""
    matrices = [operand for operand in operator.inputs if len(operand.shape) >= 2]
    if len(matrices) < 2:
        return None
    first, second = matrices[-2:]
    if operator.base_name == "linear":
        first, second = matrices[:2]
        rows = math.prod(first.shape[:-1])
        return Gemm(m=rows, n=second.shape[0], k=first.shape[-1], batch=1, dtype=first.dtype, layout="NT")
    batch = math.prod(first.shape[:-2])
    if first.shape[-1] != second.shape[-2]:
        return None
    bias = len(operator.inputs) > 2
    return Gemm(
        m=first.shape[-2], n=second.shape[-1], k=first.shape[-1], batch=max(batch, 1), dtype=first.dtype,
        epilogue="bias" if bias and len(operator.inputs[0].shape) == 1 else "",
    )  # fmt: skip


def _attention(operator: LaunchingOperator, kernel: str) -> Attention | None:
    backward = "backward" in operator.base_name
    tensors = [operand for operand in operator.inputs if len(operand.shape) == 4]
    if len(tensors) < (4 if backward else 3) or re.search("combine|dot_do_o|convert_dq|preprocess", kernel):
        return None
    query, key, value = tensors[1:4] if backward else tensors[:3]
    rows_first = operator.base_name.removeprefix("_").startswith(("flash_attention", "efficient_attention"))
    length, heads = (1, 2) if rows_first else (2, 1)
    flags = [scalar for scalar in operator.scalars if scalar in (0, 1, 2)]
    backend = next((name for name in ("cudnn", "flash") if name in operator.base_name), "efficient")
    return Attention(
        "backward" if backward else "forward", query.shape[0], query.shape[heads], key.shape[heads],
        query.shape[length], key.shape[length], query.shape[3], value.shape[3], bool(flags and flags[0]), query.dtype,
        backend,
    )  # fmt: skip


def _unclassified(event: Event, operator: str, moved_bytes: int = 0) -> Kernel:
    fields = _descriptor(event)
    grid, block = fields.numbers("grid"), fields.numbers("block")
    return Kernel(event.name, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), moved_bytes, operator)


def _descriptor(event: Event) -> Descriptor:
    sizes = {}
    for key in ("grid", "block"):
        dims = event.args.get(key)
        good = (
            isinstance(dims, list) and len(dims) == 3 and all(type(side) is int and 0 < side < 1 << 31 for side in dims)
        )
        sizes[key] = ",".join(map(str, dims)) if good and dims else "1,1,1"
    return Descriptor("kernel", {"name": event.name, **sizes})


def _copy(event: Event) -> Copy:
    size = max(event.number("bytes", 0), 0)
    if size > _MOST_ELEMENTS:
        raise InputError(f"{event.name!r} copies {size:,} bytes, which no memory holds; record the profile again")
    if event.cat.lower() == "gpu_memset":
        return Copy("memset", size)
    direction = next((short for word, short in _DIRECTIONS.items() if word in event.name), "d2d")
    return Copy(direction, size, pinned="Pinned" in event.name)  # type: ignore[arg-type]
