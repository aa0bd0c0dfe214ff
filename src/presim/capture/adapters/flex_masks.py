"""What is known of flex attention's mask from the source of inductor's template: its conditions on positions.

The template calls the query position m and the key position n. The mask renames them, may look them up in a table, and
compares them; its last assignment joins conditions with ``&``. What comes from a table has values on the device.
"""

from __future__ import annotations

import dataclasses
import re

_ASSIGNMENT = re.compile(r"^\s*(tmp\d+) = (.+?)\s*$", re.MULTILINE)
_COMPARISON = re.compile(r"(tmp\d+) (>=|<=|>|<) (tmp\d+)")
_BOTH = re.compile(r"(tmp\d+) & (tmp\d+)")
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
    """The mask in a kernel's source, which is the whole generated file."""
    expressions = dict(_ASSIGNMENT.findall(source))
    compared = _compared_positions(source)
    result = _RESULT.findall(source)
    conditions = _joined(result[0], expressions) if result else []
    windows = {name: size for name in conditions if (size := _window(expressions[name], expressions))}
    known = {name for name in conditions if "True" in expressions[name] or name in windows or name == compared[0]}
    is_whole = bool(conditions) and known == set(conditions)
    return Mask(compared[1], min(windows.values(), default=0), is_whole)


def _joined(name: str, expressions: dict[str, str]) -> list[str]:
    """The conditions that all have to hold for a name to be true."""
    both = _BOTH.fullmatch(expressions.get(name, ""))
    return [part for word in both.groups() for part in _joined(word, expressions)] if both else [name]


def _window(expression: str, expressions: dict[str, str]) -> int:
    """The keys that a condition ``m - n < constant`` allows, in either order of its sides; 0 if it is no such one."""
    compared = _COMPARISON.fullmatch(expression)
    if compared is None:
        return 0
    first, sign, second = compared.groups()
    distance, limit = (first, second) if sign in ("<", "<=") else (second, first)
    ends = _DISTANCE.fullmatch(expressions.get(distance, ""))
    constant = _CONSTANT.fullmatch(expressions.get(limit, ""))
    if ends is None or constant is None or not constant.group(1).isdecimal():
        return 0
    if [expressions.get(end) for end in ends.groups()] != ["(m)", "(n)"]:
        return 0
    return int(constant.group(1)) + (sign in ("<=", ">="))


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
