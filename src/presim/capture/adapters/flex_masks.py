"""What is known of flex attention's mask from the source of inductor's template: its conditions on positions.

The template calls the query position m and the key position n. The mask renames them, may look them up in a table, and
compares them; its last assignment joins conditions with ``&``. What comes from a table has values on the device.
"""

from __future__ import annotations

import dataclasses
import re

_ASSIGNMENT = re.compile(r"^\s*(tmp\d+) = (.+?)\s*$", re.MULTILINE)
_COMPARISON = re.compile(r"(tmp\d+) (>=|<=|>|<) (tmp\d+)")
_CONJUNCTION = re.compile(r"(tmp\d+) & (tmp\d+)")
_DISTANCE = re.compile(r"(tmp\d+) - (tmp\d+)")
_CONSTANT = re.compile(r"tl\.full\(\[1\], (\w+), tl\.\w+\)")
_RESULT = re.compile(r"^\s*mask_mod_output = (tmp\d+)\s*$", re.MULTILINE)
_WORD = re.compile(r"tmp\d+")


@dataclasses.dataclass(frozen=True)
class Mask:
    """A mask's conditions.

    ``positions``: ``causal`` if the query position has to be at least the key position; ``shared`` if the compared
    positions were looked up or computed first (context parallelism distributes sequences in pieces); ``""`` otherwise.
    ``window``: how many keys before a query it sees at most; 0: there is no such condition. ``is_whole``: there are no
    other conditions.
    """

    positions: str = ""
    window: int = 0
    is_whole: bool = False


def mask_of(source: str) -> Mask:
    """The mask in a kernel's source, which is the whole generated file; that of its first loop, as all have the same.

    A comparison of positions that need not hold (``causal | prefix``) hides nothing for certain.
    """
    if (result := _RESULT.search(source)) is None:
        return Mask(_compared_positions(source)[1])
    source = source[: result.start()]
    expressions = dict(_ASSIGNMENT.findall(source))
    conditions = _required(result.group(1), expressions)
    comparison, positions = _compared_positions(source)
    windows = {name: size for name in conditions if (size := _window(expressions.get(name, ""), expressions))}
    always_true = {name for name in conditions if _constant(expressions.get(name, "")) == "True"}
    return Mask(
        positions=positions if comparison in conditions else "",
        window=min(windows.values(), default=0),
        is_whole=set(conditions) <= {comparison, *windows, *always_true},
    )


def _required(name: str, expressions: dict[str, str]) -> list[str]:
    """The conditions that all have to hold for a name to be true."""
    conjunction = _CONJUNCTION.fullmatch(expressions.get(name, ""))
    if conjunction is None:
        return [name]
    return [condition for word in conjunction.groups() for condition in _required(word, expressions)]


def _constant(expression: str) -> str:
    """The value of a constant; empty for other expressions."""
    constant = _CONSTANT.fullmatch(expression)
    return constant.group(1) if constant else ""


def _window(expression: str, expressions: dict[str, str]) -> int:
    """The keys that a condition ``m - n < constant`` allows, in either order of its sides; 0 if it is no such one."""
    compared = _COMPARISON.fullmatch(expression)
    if compared is None:
        return 0
    first, sign, second = compared.groups()
    distance, limit = (first, second) if sign in ("<", "<=") else (second, first)
    subtraction = _DISTANCE.fullmatch(expressions.get(distance, ""))
    size = _constant(expressions.get(limit, ""))
    if subtraction is None or not size.isdecimal():
        return 0
    if [expressions.get(position) for position in subtraction.groups()] != ["(m)", "(n)"]:
        return 0
    return int(size) + (sign in ("<=", ">="))


def _compared_positions(source: str) -> tuple[str, str]:
    """The name of the comparison of a query's and a key's position, and what it says of them, as `Mask.positions`."""
    kinds: dict[str, str] = {}  # name -> derived from the query position (m), the key position (n) or both
    plain: set[str] = set()
    for name, expression in _ASSIGNMENT.findall(source):
        if compared := _COMPARISON.fullmatch(expression):
            first, sign, second = compared.groups()
            query, key = (first, second) if sign in (">=", ">") else (second, first)
            if kinds.get(query) == "m" and kinds.get(key) == "n":
                return name, "causal" if {query, key} <= plain else "shared"
        used = {kinds[word] for word in _WORD.findall(expression) if word in kinds}
        if expression in ("(m)", "(n)"):
            used = {expression[1]}
            plain.add(name)
        kinds.pop(name, None)
        if used:
            kinds[name] = used.pop() if len(used) == 1 else "both"
    return "", ""
