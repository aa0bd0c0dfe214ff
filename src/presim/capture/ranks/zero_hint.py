"""Guess from a script's text whether rank 0 does what no other rank does, such as printing a loss.

Such a job needs rank 1 to tell "rank 0 differs" from "the last rank differs". With this guess rank 1 runs at once with
the others instead of later with rank 0 once more. A wrong guess changes which ranks run when, never what is compared.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

_RANK = re.compile(r"(?<!local_)(?<!node_)(?<!group_)rank(?!s)|procid", re.IGNORECASE)
_IS_FIRST = re.compile(r"(main|master|rank_zero|global_zero|process_zero)", re.IGNORECASE)
_IS_QUESTION = re.compile(r"^is_|_process$|^master|rank_zero|global_zero", re.IGNORECASE)


def singles_out_rank_0(source: str, args: Sequence[str] = ()) -> bool:
    """Whether a script with these arguments seems to ask if its rank is 0; False where its text is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    options = {_option_name(word) for word in args if word.startswith("-")}
    switched = {
        id(node) for root in ast.walk(tree) for value in _behind_a_switch(root, options) for node in ast.walk(value)
    }
    return any(_asks(node) for node in ast.walk(tree) if id(node) not in switched)


def _option_name(word: str) -> str:
    """The name in Python of a command line's option: ``log_loss`` of ``--log-loss=1``."""
    return word.lstrip("-").partition("=")[0].replace("-", "_")


def _behind_a_switch(node: ast.AST, options: Collection[str]) -> list[ast.expr]:
    """What an ``and`` only asks where an option is on, as in ``options.log and rank == 0``: off unless it is given."""
    if not (isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)):
        return []
    first = node.values[0]
    name = first.attr if isinstance(first, ast.Attribute) else first.id if isinstance(first, ast.Name) else ""
    return node.values[1:] if name and name not in options and not _asks(first) else []


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(map(_is_zero, sides)) and any(_RANK.search(ast.unparse(side)) for side in sides)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return bool(_RANK.search(ast.unparse(node.operand)))
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(_IS_FIRST.search(name) and _IS_QUESTION.search(name))


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and node.value is not False
