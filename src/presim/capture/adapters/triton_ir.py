"""Parse Triton's intermediate code (TTIR, ``compiled.asm["ttir"]``): blocks of operations over numbered values.

Only what counting needs is kept: operation names, operands, results, types and nesting. A call of a function that is
not inlined becomes an operation whose region is the function's body. The syntax is MLIR as printed by Triton 3.x; a
line that cannot be parsed becomes an unknown operation.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_VALUE = re.compile(r"%[\w.$-]+(?:#\d+)?")
_LOCATION = re.compile(r' loc\((?:"[^"]*"|[^()"]|\((?:"[^"]*"|[^()"]|\((?:"[^"]*"|[^()"]|\([^()]*\))*\))*\))*\)')
_ATTRIBUTES = re.compile(r"<?\{[^{}]*\}>?|dense<[^<>]*>")
_TYPE = re.compile(
    r"(?:tensor|tensordesc)<((?:\d+x)*)(!tt\.ptr<[^<>]*(?:<[^<>]*>)?>|\w+)|(!tt\.ptr<\w+)|\b((?:i|f|bf)\d+\w*|index)\b"
)
_RESULTS = re.compile(r"(%[\w.$-]+(?:, %[\w.$-]+)*)(?::(\d+))? = (.*)")
_NAME = re.compile(r'"?([A-Za-z_][\w.]*)"?')
_LABEL = re.compile(r"\^(\w+)(?:\((.*)\))?:")
_FUNCTION = re.compile(r"tt\.func (?:\w+ )*@([\w.$-]+)\((.*)")
_DEFINED = re.compile(r"(%[\w.$-]+): (\S+)")
_LOOP = re.compile(r"scf\.for (?:unsigned )?(%\S+) = (%\S+) to (%\S+) step (%\S+)(?: iter_args\(([^)]*)\))?")
_CARRIED = re.compile(r"(%[\w.$-]+) = (%[\w.$#-]+)")


class Type(NamedTuple):
    """The type of a value: a tensor or a scalar."""

    shape: tuple[int, ...]
    dtype: str  # in MLIR's notation: bf16, f8E4M3FN, i32
    is_pointer: bool = False

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes in memory; for a pointer those of its target."""
        bits = re.search(r"\d+", self.dtype)
        return self.elements * max(int(bits[0]) // 8 if bits else 8, 1)


@dataclasses.dataclass(eq=False)
class Op:
    """One operation; values are numbers."""

    name: str
    results: tuple[int, ...]
    operands: tuple[int, ...]
    text: str  # the text after the name
    types: list[Type]  # in textual order
    regions: list[list[Block]] = dataclasses.field(default_factory=list)
    targets: tuple[tuple[str, tuple[int, ...]], ...] = ()  # of a branch: target labels with their arguments


@dataclasses.dataclass(eq=False)
class Block:
    """Operations in order; the last one decides where execution continues."""

    label: str = ""
    arguments: tuple[int, ...] = ()
    ops: list[Op] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Code:
    """A kernel."""

    parameters: dict[str, int]  # name -> value
    pointers: frozenset[str]  # parameters that point to tensors
    blocks: list[Block]


def parse(text: str) -> Code:
    """Parse the kernel in a module's text.

    Raises:
        ValueError: the text has no kernel.
    """
    functions: dict[str, list[str]] = {}
    kernel = ""
    for line in text.splitlines():
        line = _LOCATION.sub("", line).split("  //")[0].strip()
        if begins := _FUNCTION.match(line):
            functions[begins[1]] = [line]
            kernel = begins[1] if "tt.func public" in line else kernel
        elif functions and line and not line.startswith("#"):
            functions[next(reversed(functions))].append(line)
    if kernel not in functions:
        raise ValueError("no public function in this code")
    return _Reader(functions).kernel(kernel)


def walk(blocks: list[Block]) -> Iterator[Op]:
    """All operations in textual order."""
    for block in blocks:
        for op in block.ops:
            yield op
            for region in op.regions:
                yield from walk(region)


class _Reader:
    """Parses functions line by line; names are valid within the region that defines them."""

    def __init__(self, functions: dict[str, list[str]]) -> None:
        self.functions = functions
        self.scopes: list[dict[str, int]] = []
        self.count = 0

    def kernel(self, name: str) -> Code:
        parameters, blocks = self._function(name)
        pointers = frozenset(key for key, (_, kind) in parameters.items() if "tt.ptr" in kind or "tensordesc" in kind)
        return Code({key: value for key, (value, _) in parameters.items()}, pointers, blocks)

    def _function(self, name: str) -> tuple[dict[str, tuple[int, str]], list[Block]]:
        outer, self.scopes = self.scopes, [{}]
        lines = iter(self.functions[name])
        parameter_types = _DEFINED.findall(next(lines))
        parameters = {key[1:]: (self._define(key), kind) for key, kind in parameter_types}
        blocks = [Block(arguments=tuple(value for value, _ in parameters.values()))]
        self._region(lines, blocks)
        self.scopes = outer
        return parameters, blocks

    def _define(self, name: str) -> int:
        self.count += 1
        self.scopes[-1][name] = self.count
        return self.count

    def _value(self, name: str) -> int:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), 0)

    def _region(self, lines: Iterator[str], blocks: list[Block]) -> str:
        """Fill the blocks of a region; returns the line that ends it."""
        for line in lines:
            if line.startswith("}"):
                return line
            if label := _LABEL.match(line):
                defined = tuple(self._define(name) for name, _ in _DEFINED.findall(label[2] or ""))
                if blocks[0].ops or blocks[0].arguments:
                    blocks.append(Block(label[1], defined))
                else:
                    blocks[0].label, blocks[0].arguments = label[1], defined
                continue
            blocks[-1].ops.append(self._op(line, lines))
        return ""

    def _op(self, line: str, lines: Iterator[str]) -> Op:
        definition = _RESULTS.match(line)
        expression = definition[3] if definition else line
        named = _NAME.match(expression)
        name = named[1] if named else expression
        if name == "scf.for" and (loop := _LOOP.match(expression)):
            carried = _CARRIED.findall(loop[5] or "")
            operands = [*loop.groups()[1:4], *(before for _, before in carried)]
            inside = [loop[1], *(name for name, _ in carried)]
        elif name == "scf.while":
            carried = _CARRIED.findall(expression)
            operands, inside = [before for _, before in carried], [name for name, _ in carried]
        else:
            operands, inside = _VALUE.findall(expression), []
        op = Op(name, (), tuple(self._value(operand) for operand in operands), expression, types_of(expression))
        if name.startswith("cf."):
            op.targets = tuple(
                (target, tuple(self._value(value) for value in _VALUE.findall(passed_values)))
                for target, passed_values in re.findall(r"\^(\w+)(?:\(([^)]*)\))?", expression)
            )
        if expression.endswith("{"):
            self._regions(op, inside, lines)
        elif name == "tt.call" and (called := re.search(r"@([\w.$-]+)", expression)) and called[1] in self.functions:
            op.regions.append(self._function(called[1])[1])
        op.results = self._results(definition)
        return op

    def _regions(self, op: Op, inside: list[str], lines: Iterator[str]) -> None:
        end = "{"
        while end.endswith("{") and not end.startswith("} {"):  # `} else {`, `} do {`, `}, {`
            self.scopes.append({})
            blocks = [Block(arguments=tuple(self._define(name) for name in inside))]
            end = self._region(lines, blocks)
            self.scopes.pop()
            op.regions.append(blocks)
            inside = []
        op.types += types_of(end)

    def _results(self, definition: re.Match[str] | None) -> tuple[int, ...]:
        if not definition:
            return ()
        names = definition[1].split(", ")
        if definition[2]:
            names = [f"{names[0]}#{index}" for index in range(int(definition[2]))]
        return tuple(self._define(name) for name in names)


def types_of(text: str) -> list[Type]:
    """Types in a line, without those of attributes."""
    types = []
    for shape, element, pointer, scalar in _TYPE.findall(_ATTRIBUTES.sub("", text)):
        sizes = tuple(int(size) for size in shape.split("x") if size)
        pointed = element.removeprefix("!tt.ptr<").rstrip(">") if element else pointer.removeprefix("!tt.ptr<")
        is_pointer = bool(pointer) or element.startswith("!tt.ptr")
        types.append(Type(sizes, scalar or pointed, is_pointer))
    return types
