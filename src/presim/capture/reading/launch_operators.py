"""The operator of a launch: its tensors and their bytes."""

from __future__ import annotations

import dataclasses
import math
import re

from presim.capture.reading.log import Descriptor
from presim.trace.dtypes import dtype_bytes

_DTYPES = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "Bool": "bool",
    "BFloat16": "bfloat16",
    "UInt16": "uint16",
    "UInt32": "uint32",
    "UInt64": "uint64",
}
_NO_ROWS = ("batch_norm", "group_norm", "instance_norm", "nll_loss", "norm_except_dim")
_TENSOR = re.compile(r"(cpu:)?(\w+)(?:\[([-\d;]*)\]|\{(\d+);(\d+)\})")


@dataclasses.dataclass(frozen=True)
class Operand:
    """A tensor, or a list of tensors as one."""

    dtype: str
    elements: int
    on_device: bool
    shape: tuple[int, ...] = ()  # of a single tensor
    tensors: int = 1
    repeated: int = 1  # how often each element in memory appears in an expanded dimension
    strides: tuple[int, ...] = ()  # in elements, where a graph tells them; captures do not

    @property
    def bytes(self) -> int:
        """Bytes in memory."""
        return self.elements // self.repeated * dtype_bytes(self.dtype)


@dataclasses.dataclass(frozen=True)
class LaunchingOperator:
    """One operator call, as seen by its launches."""

    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    scalars: tuple[int, ...] = ()
    instructions: tuple[int, ...] = ()  # of a generated kernel, by all threads: plain, special, wide
    is_tiled: bool = False  # of a generated kernel: some tensors are accessed transposed
    accessed_bytes: tuple[int, ...] = ()  # of an analysed Triton kernel: bytes read and written
    products: tuple[tuple[str, int], ...] = ()  # likewise: FLOPs of matrix products by type
    programs: int = 0  # likewise: programs of the launch
    longest: int = 100  # likewise: work of the longest program, in percent of the mean
    group_ends: tuple[int, ...] = ()  # of a grouped product: the end of each group, if known
    work: Descriptor | None = None  # the kernel's work as a library call, if its launcher describes it

    @property
    def base_name(self) -> str:
        """The name without namespace, trailing underscore and ``_out``: ``aten::add_`` is ``add``."""
        return self.name.split("::")[-1].split(".")[0].removesuffix("_out").rstrip("_")

    @property
    def row(self) -> int:
        """Elements in a row of a norm or softmax: the last dimension of the largest tensor, or 0.

        Norms over samples or channels, and losses that pick single elements, have no such rows.
        """
        if any(word in self.base_name for word in _NO_ROWS):
            return 0
        shaped = [operand for operand in self.inputs + self.outputs if operand.shape]
        return max(shaped, key=lambda operand: operand.elements).shape[-1] if shaped else 0

    @property
    def in_place(self) -> bool:
        """Whether it writes into its first input."""
        return self.name.endswith("_") and not self.name.endswith("__")


def parse_operator(descriptor: Descriptor) -> LaunchingOperator:
    """Parse an operator from the hook's text."""
    scalars = descriptor.fields.get("args", "")
    inputs = parse_operands(descriptor.fields.get("in", ""))
    outputs = parse_operands(descriptor.fields.get("out", ""))
    writes = descriptor.fields.get("writes", "").split(",")
    positions = [position for position in writes if position not in ("", "argument")]
    if positions and inputs:
        inputs, outputs = _split_by_access(inputs, positions)
    elif "argument" in writes and inputs:  # the last arguments are the outputs
        results = max(1, len(outputs))
        inputs, outputs = inputs[:-results], outputs or inputs[-1:]  # described again once they were resized
    family = descriptor.fields.get("is")
    return LaunchingOperator(
        name=descriptor.fields.get("name", ""),
        inputs=inputs,
        outputs=outputs,
        scalars=_integers(scalars),
        instructions=_integers(descriptor.fields.get("instructions", "")),
        accessed_bytes=_integers(descriptor.fields.get("moved", "")),
        products=_counts(descriptor.fields.get("products", "")),
        programs=descriptor.number("programs"),
        longest=descriptor.number("longest", 100),
        group_ends=_integers(descriptor.fields.get("ends", "")),
        is_tiled=descriptor.fields.get("tiled") == "1",
        work=Descriptor(family, descriptor.fields) if family else None,
    )


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",")) if text else ()


def _counts(text: str) -> tuple[tuple[str, int], ...]:
    pairs = (part.split(":") for part in text.split(",") if part)
    return tuple((name, int(count)) for name, count in pairs)


def _split_by_access(
    inputs: tuple[Operand, ...], written: list[str]
) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """Split arguments into read and written ones, from the positions written; "0!" is not read before."""
    outputs = tuple(inputs[int(position.rstrip("!"))] for position in written)
    unread = {int(position[:-1]) for position in written if position.endswith("!")}
    return tuple(operand for index, operand in enumerate(inputs) if index not in unread), outputs


def parse_operands(text: str) -> tuple[Operand, ...]:
    """Parse ``BFloat16[4;8],cpu:Float[],Float{291;8030261248}``: tensors with shapes, a list with count and elements.

    An expanded dimension has a negative size: ``Half[2;-8]`` are 2 elements, each repeated 8 times.
    """
    operands = []
    for cpu, dtype, sizes, count, elements in _TENSOR.findall(text):
        name = _DTYPES.get(dtype, dtype.lower())
        if count:
            operands.append(Operand(name, int(elements), not cpu, tensors=int(count)))
            continue
        signed = tuple(int(size) for size in sizes.split(";")) if sizes else ()
        shape = tuple(abs(size) for size in signed)
        repeated = math.prod(-size for size in signed if size < 0)
        operands.append(Operand(name, math.prod(shape), not cpu, shape, repeated=repeated))
    return tuple(operands)
