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


def _truncated(left: int, right: int) -> int:
    """Integer division towards zero, as in C."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_BINARY: dict[str, Callable[..., int | float]] = {
    "addi": operator.add, "subi": operator.sub, "muli": operator.mul, "divsi": _truncated, "divui": operator.floordiv,
    "remsi": lambda left, right: left - right * _truncated(left, right), "remui": operator.mod,
    "ceildivsi": lambda left, right: -(-left // right), "ceildivui": lambda left, right: -(-left // right),
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
    found = _CONSTANT.match(op.text)
    if not found:
        return None
    if found[1] in ("true", "false"):
        return int(found[1] == "true")
    return float(found[1]) if re.search(r"[.eE]", found[1]) else int(found[1])


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
        chosen = values[0]
        return None if chosen is None else values[1] if chosen else values[2]
    numbers = [value for value in values if isinstance(value, (int, float))]
    if name in ("andi", "muli") and 0 in numbers:
        return 0
    if len(numbers) < len(values):
        return None
    return _evaluate_numbers(op, name, numbers)


def _evaluate_numbers(op: Op, name: str, numbers: list[int | float]) -> Scalar:
    try:
        if name in ("cmpi", "cmpf"):
            how = op.text.split()[1].rstrip(",")
            how = how if how in ("eq", "ne") else how[1:]  # without u, s or o: such comparisons are the same here
            return int(_COMPARISONS[how](*numbers))
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
