"""How much arithmetic a kernel that torch.compile generated does, from its source.

Most such kernels take as long as their bytes. Some do not: torchao's scales of rows are recomputed for every element,
in 64 bits. Counted are instructions of all threads together, of three kinds that a GPU works off at rates of their own
(CUDA C++ Programming Guide, throughput of native arithmetic instructions). How many instructions a function or a
division takes is what nvcc's libraries make of it, to within a few. Addresses are not counted: a thread works out one
for several elements.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import NamedTuple

_PER_THREAD = 8  # elements that a thread holds: what is the same for all of them it computes once
_TILE = 2048  # elements of a row that threads take at a time
_BLOCKS = {"XBLOCK": "x", "YBLOCK": "y", "ZBLOCK": "z", "R0_BLOCK": "r0_", "R1_BLOCK": "r1_"}
_FUNCTIONS = {  # plain and special instructions of one in 32 bits
    "exp": (6, 1), "exp2": (3, 1), "log": (6, 1), "log2": (4, 1), "log1p": (10, 1), "rsqrt": (1, 1), "sqrt": (4, 1),
    "sqrt_rn": (8, 1), "tanh": (12, 2), "erf": (24, 1), "sigmoid": (6, 2), "sin": (20, 2), "cos": (20, 2),
    "pow": (30, 4), "div_rn": (9, 1), "rand": (60, 0), "randn": (80, 4),
}  # fmt: skip
_DIVISION, _WIDE_DIVISION = (4, 1, 0), (2, 1, 8)


class Arithmetic(NamedTuple):
    """Instructions of all threads."""

    plain: int = 0  # one a lane and clock: 32 bits and fewer
    special: int = 0  # transcendental functions, reciprocals, conversions from and to 64 bits
    wide: int = 0  # floating point in 64 bits


class _Value(NamedTuple):
    """What is known of a variable: along which axes it differs, and its type where it is known."""

    axes: frozenset[str] = frozenset()
    dtype: str = ""


def is_tiled(sizes: Mapping[str, int]) -> bool:
    """Whether a kernel walks over tiles of two axes: so torch.compile does where tensors lie across each other."""
    return all(sizes.get(name, 1) > 1 for name in ("xnumel", "ynumel"))


def arithmetic(source: str, sizes: Mapping[str, int]) -> Arithmetic:
    """Of one launch; nothing for kernels of other origin than torch.compile.

    Args:
        source: the kernel in Python, as Triton compiles it.
        sizes: elements along each axis by the name of the parameter that says so: xnumel, ynumel, r0_numel, …
    """
    try:
        kernel = ast.parse(source).body[0]
    except (SyntaxError, IndexError):
        return Arithmetic()
    if not isinstance(kernel, ast.FunctionDef) or not kernel.name.startswith("triton_"):
        return Arithmetic()
    counter = _Counter({name.removesuffix("numel"): size for name, size in sizes.items() if name.endswith("numel")})
    counter.block(kernel.body, frozenset(axis for axis in counter.sizes if not axis.startswith("r")))
    return Arithmetic(*(round(count) for count in counter.total))


class _Counter:
    """Walks over a kernel's statements in order."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.values: dict[str, _Value] = {}
        self.total = [0.0, 0.0, 0.0]
        self.counts = (0.0, 0.0, 0.0)  # of the statement at hand

    def block(self, statements: list[ast.stmt], axes: frozenset[str]) -> None:
        """Statements that are run for each element along the axes."""
        for statement in statements:
            if isinstance(statement, ast.For):
                around = ast.unparse(statement.target).removesuffix("offset")
                self.block(statement.body, axes | {around} & set(self.sizes))
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                self.counts = (0.0, 0.0, 0.0)
                value = self.values[name] = self._value(statement.value)
                if "tmp" in name:
                    self._add(value.axes, axes)
            elif isinstance(statement, ast.Expr) and _called(statement.value) == "store":
                self.counts = (0.5, 0.0, 0.0)
                self._add(axes, axes)

    def _add(self, axes: frozenset[str], around: frozenset[str]) -> None:
        """The statement's instructions, once a thread where it is the same for all of a thread's elements."""
        whole = axes | around
        rows = math.prod(self.sizes[axis] for axis in whole if not axis.startswith("r"))
        along = math.prod(self.sizes[axis] for axis in self.sizes if axis.startswith("r"))
        if axes >= around and (along == 1 or any(axis.startswith("r") for axis in axes)):
            times = float(rows * along)
        else:
            times = rows * (along if whole & {"r0_", "r1_"} else min(along, _TILE)) / _PER_THREAD
        self.total = [total + count * times for total, count in zip(self.total, self.counts)]

    def _count(self, plain: float, special: float = 0, wide: float = 0) -> None:
        self.counts = (self.counts[0] + plain, self.counts[1] + special, self.counts[2] + wide)

    def _value(self, node: ast.expr) -> _Value:
        if isinstance(node, ast.Name):
            return self.values.get(node.id, _Value())
        if isinstance(node, ast.Subscript):
            return self._value(node.value)
        if isinstance(node, ast.Call):
            return self._call(node)
        parts = [self._value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        joined = _join(parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            self._count(*(_WIDE_DIVISION if joined.dtype == "float64" else _DIVISION))
        elif isinstance(node, (ast.BinOp, ast.Compare)) and joined.dtype == "float64":
            self._count(0, 0, 1)
        elif isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) and not _is_constant(node):
            self._count(1)
        return _Value(joined.axes, "bool") if isinstance(node, ast.Compare) else joined

    def _call(self, node: ast.Call) -> _Value:
        name = _called(node)
        if name == "arange":
            axis = _BLOCKS.get(ast.unparse(node.args[1]), "")
            return _Value(frozenset({axis} & set(self.sizes)), "int32")
        if name == "load":
            kept, value = self.counts, self._value(node.args[0])
            self.counts = kept
            self._count(0.5)
            return _Value(value.axes)
        if name == "full":
            return _Value(dtype=ast.unparse(node.args[-1]).removeprefix("tl."))
        if name == "to" and isinstance(node.func, ast.Attribute):
            return self._converted(self._value(node.func.value), ast.unparse(node.args[0]).removeprefix("tl."), node)
        value = _join([self._value(argument) for argument in node.args])
        if name in ("broadcast_to", "reshape"):
            return value
        if name == "where":
            self._count(2 if value.dtype == "float64" else 1)
            return value
        self._count(*_FUNCTIONS.get(name, (1, 0)))
        if name in ("sum", "max2", "min2", "any", "prod", "welford"):
            return _Value(frozenset(axis for axis in value.axes if not axis.startswith("r")), value.dtype)
        return value

    def _converted(self, value: _Value, dtype: str, node: ast.Call) -> _Value:
        if "float64" in (value.dtype, dtype) and value.dtype != dtype:
            self._count(0, 1)
        elif value.dtype != dtype and not node.keywords:  # bits that are read as another type cost nothing
            self._count(1)
        return _Value(value.axes, dtype)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)


def _join(values: list[_Value]) -> _Value:
    axes = frozenset().union(*(value.axes for value in values)) if values else frozenset()
    dtypes = [value.dtype for value in values]
    wide = "float64" in dtypes
    return _Value(axes, "float64" if wide else next((dtype for dtype in dtypes if dtype not in ("", "bool")), ""))


def _called(node: ast.expr) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
