"""Evaluate scalar TTIR operations; unknown values are None."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from presim.capture.adapters.triton_ir import Op


class Address(NamedTuple):
    """An address within a tensor argument of the kernel."""

    tensor: str
    offset: int = 0  # in elements


Scalar: TypeAlias = int | float | Address | None
_CONSTANT = re.compile(r"arith\.constant (-?[\d.]+(?:[eE][+-]?\d+)?|true|false)\b")


def _truncated_quotient(dividend: int, divisor: int) -> int:
    """Integer division towards zero, as in C."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


def _truncated_remainder(dividend: int, divisor: int) -> int:
    return dividend - divisor * _truncated_quotient(dividend, divisor)


def _ceil_quotient(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


_BINARY: dict[str, Callable[..., int | float]] = {
    "addi": operator.add, "subi": operator.sub, "muli": operator.mul,
    "divsi": _truncated_quotient, "divui": operator.floordiv,
    "remsi": _truncated_remainder, "remui": operator.mod, "ceildivsi": _ceil_quotient, "ceildivui": _ceil_quotient,
    "floordivsi": operator.floordiv, "minsi": min, "minui": min, "maxsi": max, "maxui": max,
    "andi": operator.and_, "ori": operator.or_, "xori": operator.xor, "shli": operator.lshift,
    "shrsi": operator.rshift, "shrui": operator.rshift,
    "addf": operator.add, "subf": operator.sub, "mulf": operator.mul, "divf": operator.truediv,
    "minnumf": min, "maxnumf": max, "minimumf": min, "maximumf": max,
}  # fmt: skip
_UNARY: dict[str, Callable[..., int | float]] = {
    "extsi": int, "extui": abs, "trunci": int, "index_cast": int, "index_castui": int, "sitofp": float,
    "uitofp": float, "fptosi": int, "fptoui": int, "extf": float, "truncf": float, "ceil": math.ceil,
    "floor": math.floor, "negf": operator.neg, "absi": abs, "absf": abs, "sqrt": math.sqrt, "exp2": lambda x: 2.0**x,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[..., bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def constant(op: Op) -> Scalar:
    """The value of an ``arith.constant``; None for a tensor."""
    literal = _CONSTANT.match(op.text)
    if not literal:
        return None
    if literal[1] in ("true", "false"):
        return int(literal[1] == "true")
    return float(literal[1]) if re.search(r"[.eE]", literal[1]) else int(literal[1])


def evaluate(op: Op, values: Sequence[Scalar]) -> Scalar:
    """The result of an operation on scalars. Booleans are 0 and 1; integers do not overflow."""
    dialect, _, name = op.name.partition(".")
    if op.name == "tt.addptr":
        base, offset = values
        return (
            Address(base.tensor, base.offset + offset)
            if isinstance(base, Address) and isinstance(offset, int)
            else None
        )
    if dialect not in ("arith", "math") or (op.types and op.types[-1].shape):
        return None
    if name == "constant":
        return constant(op)
    if name == "select":
        condition = values[0]
        return None if condition is None else values[1] if condition else values[2]
    numbers = [value for value in values if isinstance(value, (int, float))]
    if name in ("andi", "muli") and 0 in numbers:
        return 0
    if len(numbers) < len(values):
        return None
    return _evaluate_numbers(op, name, numbers)


def _evaluate_numbers(op: Op, name: str, numbers: list[int | float]) -> Scalar:
    try:
        if name in ("cmpi", "cmpf"):
            predicate = op.text.split()[1].rstrip(",")
            if predicate not in ("eq", "ne"):
                predicate = predicate[1:]  # without u, s or o: such comparisons are the same here
            return int(_COMPARISONS[predicate](*numbers))
        if name in _BINARY:
            return _BINARY[name](*numbers)
        return _UNARY[name](*numbers) if name in _UNARY else None
    except (
        ArithmeticError,
        KeyError,
        TypeError,
        ValueError,
    ):  # invalid operations, which the kernel does not run either
        return None
