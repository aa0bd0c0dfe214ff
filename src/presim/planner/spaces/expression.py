"""Constraints of space files: arithmetic parsed by Python's parser and evaluated here; no code is executed."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from presim.errors import InputError
from presim.planner.trials.trial import Value, format_value

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LONGEST = 500  # characters


class Expression:
    """A condition over names: ``layers % (pp * vpp) == 0``.

    >>> Expression("layers % pp == 0 or pp == 1").holds({"layers": 30, "pp": 4})
    False
    """

    def __init__(self, text: str) -> None:
        """Raises InputError if the text has more than arithmetic and comparisons."""
        self.text = text
        if len(text) > _LONGEST:
            raise InputError(f"the constraint {text[:40]!r}… has more than {_LONGEST} characters; shorten it")
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError) as error:
            raise InputError(f"the constraint {text!r} is not a valid expression: {error}; correct it") from error
        self._check(self._tree)
        self.names = sorted({node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)})

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether the condition is true; false if a divisor is 0.

        Raises:
            InputError: the types do not match, e.g. a word and a number.
        """
        try:
            return bool(_value(self._tree, values))
        except ZeroDivisionError:
            return False
        except (TypeError, KeyError) as error:
            raise InputError(f"the constraint {self.text!r} cannot be computed: {error}; correct it") from error

    def with_numbers(self, values: Mapping[str, Value]) -> str:
        """The condition with the values of its names."""
        assignments = ", ".join(f"{name} = {format_value(values[name])}" for name in self.names if name in values)
        return f"{self.text}, with {assignments}" if assignments else self.text

    def _check(self, node: ast.AST) -> None:
        """Raise for any node that `_value` does not evaluate."""
        match node:
            case ast.BinOp(op=op) if type(op) in _BINARY:
                parts: list[ast.expr] = [node.left, node.right]
            case ast.Compare(ops=ops) if all(type(op) in _COMPARED for op in ops):
                parts = [node.left, *node.comparators]
            case ast.BoolOp():
                parts = node.values
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                parts = [node.operand]
            case ast.Name() | ast.Constant(value=bool() | int() | float() | str()):
                parts = []
            case _:
                source = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
                raise InputError(
                    f"the constraint {self.text!r} contains {source!r}: only names, numbers, words, + - * // %, "
                    "comparisons, and, or, not are allowed; correct it"
                )
        for part in parts:
            self._check(part)


def _value(node: ast.AST, values: Mapping[str, Value]) -> Any:
    match node:
        case ast.BinOp(op=op):
            first, second = _value(node.left, values), _value(node.right, values)
            if isinstance(first, str) or isinstance(
                second, str
            ):  # word * number or a format string could exhaust memory
                raise TypeError("arithmetic needs numbers, not words")
            return _BINARY[type(op)](first, second)
        case ast.Compare():
            sides = [_value(side, values) for side in (node.left, *node.comparators)]
            return all(_COMPARED[type(op)](*pair) for op, pair in zip(node.ops, itertools.pairwise(sides)))
        case ast.BoolOp(op=ast.And()):
            return all(_value(operand, values) for operand in node.values)
        case ast.BoolOp():
            return any(_value(operand, values) for operand in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, values)
        case ast.UnaryOp():
            return -_value(node.operand, values)
        case ast.Name():
            return values[node.id]
        case ast.Constant():
            return node.value
    raise AssertionError(f"tests/unit/planner/spaces/test_expression.py reaches {node}")
