"""Variables of a bash script, and words with their expansions in place.

What a script does not say stands in a word as a mark: a variable that nothing sets, or what a program would print.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence

MARK = re.compile("\0([^\0]*)\0")
_UNSET = re.compile("\0\\$[^\0]*\0")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!]")
_PARAMETER = re.compile(r"(#?)([A-Za-z_]\w*|\d+|[@*#])(?:\[([^\]]*)\])?(?:(:?[-=+?])(.*))?", re.DOTALL)
_OPERATORS: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.Div: lambda dividend, divisor: int(dividend / divisor),
    ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge, ast.LtE: operator.le, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_SPACES_OR_WORD = re.compile("[ \t\n]+|(?:[^ \t\n\0]|\0[^\0]*\0)+|\0")
_LITERAL = set('$`"\\\n')


def mark(text: str) -> str:
    """A mark for a value that the script does not say."""
    return f"\0{text}\0"


def without_unset(text: str) -> str:
    """The text as bash has it, where a variable that nothing sets is empty."""
    return _UNSET.sub("", text)


class Variables:
    """Values by name; arrays have several. ``words``: of the command line, after the script's name."""

    def __init__(self, values: Mapping[str, Sequence[str]], words: Sequence[str]) -> None:
        self.values = {name: list(items) for name, items in values.items()}
        self.words = list(words)

    def expanded(self, raw: str) -> list[str]:
        """The words that a raw word becomes; an unquoted expansion is split at spaces."""
        parts: list[str] = [""]
        is_word, offset = False, 0
        while offset < len(raw):
            letter = raw[offset]
            if letter == "'":
                end = raw.index("'", offset + 1)
                parts[-1] += raw[offset + 1 : end]
                is_word, offset = True, end + 1
            elif letter == '"':
                pieces, offset = self._quoted(raw, offset + 1)
                parts[-1] += pieces[0]
                parts += pieces[1:]
                is_word = True
            elif letter == "\0":
                end = raw.index("\0", offset + 1) + 1
                parts[-1] += raw[offset:end]
                offset = end
            elif letter == "\\":
                parts[-1] += raw[offset + 1 : offset + 2]
                offset += 2
            elif letter in "$`":
                items, offset = self._expansion(raw, offset)
                self._join(parts, " ".join(items))
            else:
                parts[-1] += letter
                offset += 1
        return parts if is_word or len(parts) > 1 or parts[0] else []

    def text(self, raw: str) -> str:
        """The raw word as one text, as in an assignment."""
        pieces, offset = [], 0
        while offset < len(raw):
            if raw[offset] == "'":
                end = raw.index("'", offset + 1)
                pieces.append(raw[offset + 1 : end])
                offset = end + 1
            elif raw[offset] == '"':
                items, offset = self._quoted(raw, offset + 1)
                pieces.append(" ".join(items))
            elif raw[offset] == "\0":
                end = raw.index("\0", offset + 1) + 1
                pieces.append(raw[offset:end])
                offset = end
            elif raw[offset] == "\\":
                pieces.append(raw[offset + 1 : offset + 2])
                offset += 2
            elif raw[offset] in "$`":
                items, offset = self._expansion(raw, offset)
                pieces.append(" ".join(items))
            else:
                pieces.append(raw[offset])
                offset += 1
        return "".join(pieces)

    @staticmethod
    def _join(parts: list[str], text: str) -> None:
        """Add unquoted text, split at spaces outside of marks."""
        words = [""]
        for piece in _SPACES_OR_WORD.findall(text):
            if piece[0] in " \t\n":
                words.append("")
            else:
                words[-1] += piece
        parts[-1] += words[0]
        parts += words[1:]
        if len(parts) > 1:
            parts[:-1] = [part for part in parts[:-1] if part]

    def _quoted(self, raw: str, offset: int) -> tuple[list[str], int]:
        pieces = [""]
        while raw[offset] != '"':
            if raw[offset] == "\\" and raw[offset + 1] in _LITERAL:
                pieces[-1] += raw[offset + 1]
                offset += 2
            elif raw[offset] in "$`":
                start = offset
                items, offset = self._expansion(raw, offset)
                is_list = (raw.startswith("${", start) and raw[start:offset].endswith("[@]}")) or raw[
                    start:offset
                ] == "$@"
                texts = items if is_list else [" ".join(items)]
                pieces[-1] += texts[0] if texts else ""
                pieces += texts[1:]
            else:
                pieces[-1] += raw[offset]
                offset += 1
        return pieces, offset + 1

    def _expansion(self, raw: str, offset: int) -> tuple[list[str], int]:
        """The items of an expansion, and where it ends."""
        if raw[offset] == "`":
            end = raw.index("`", offset + 1)
            return [mark(raw[offset : end + 1])], end + 1
        if raw.startswith("$((", offset):
            end = _closing(raw, offset + 1)
            return [self.sum_of(raw[offset + 3 : end - 2])], end
        if raw.startswith("$(", offset):
            end = _closing(raw, offset + 1)
            return [mark(raw[offset:end])], end
        if raw.startswith("${", offset):
            end = _closing(raw, offset + 1)
            return self._parameter(raw[offset + 2 : end - 1]), end
        match = _NAME.match(raw, offset + 1)
        return (self._items(match[0]), match.end()) if match else (["$"], offset + 1)

    def _items(self, name: str) -> list[str]:
        if name in ("@", "*"):
            return self.words
        if name == "#":
            return [str(len(self.words))]
        if name.isdigit():
            number = int(name)
            return [self.words[number - 1] if 0 < number <= len(self.words) else mark(f"${name}")]
        return self.values.get(name, [mark(f"${name}")])

    def _parameter(self, inner: str) -> list[str]:
        match = _PARAMETER.fullmatch(inner)
        if match is None:
            return [mark(f"${{{inner}}}")]
        counts, name, index, operation, other = match.groups()
        items = self._items(name)
        if counts and name != "#":
            return [str(len(items))]
        if index is None and name not in ("@", "*"):
            items = items[:1] or [""]
        elif index and index.isdigit():
            items = items[int(index) : int(index) + 1]
        text = without_unset(" ".join(items))
        is_set = bool(text) if operation and operation[0] == ":" else not _UNSET.search(" ".join(items))
        if operation and operation[-1] in "-=" and not is_set:
            items = [self.text(other)]
            if operation[-1] == "=":
                self.values[name] = items
        elif operation and operation[-1] == "+":
            items = [self.text(other)] if is_set else [""]
        return items

    def sum_of(self, text: str) -> str:
        """A computed sum; a mark where a part of it is not known."""
        named = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda name: without_unset(self._items(name[1])[0]), text)
        named = re.sub(r"\$\{?(\d+)\}?", lambda number: self._items(number[1])[0], named)
        try:
            with warnings.catch_warnings(action="ignore"):  # Python's, of numbers that run into words
                tree = ast.parse(_as_python(named).strip(), mode="eval")
            return str(int(_value(tree.body)))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, TypeError):
            return mark(f"$(({text.strip()}))")


def _as_python(text: str) -> str:
    """Bash's ``c ? a : b``, ``&&`` and ``||`` as Python has them."""
    condition, question, remainder = text.partition("?")
    if question:
        then, _, other = remainder.partition(":")
        text = f"({then}) if ({condition}) else ({other})"
    return text.replace("&&", " and ").replace("||", " or ")


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return int(_OPERATORS[type(node.op)](_value(node.left), _value(node.right)))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return int(_OPERATORS[type(node.ops[0])](_value(node.left), _value(node.comparators[0])))
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test) else node.orelse)
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(part)) for part in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    raise ValueError("no sum of whole numbers")


def _closing(raw: str, offset: int) -> int:
    """Where the bracket at a position ends."""
    opening, depth = raw[offset], 0
    closing = {"(": ")", "{": "}"}[opening]
    for position in range(offset, len(raw)):
        depth += (raw[position] == opening) - (raw[position] == closing)
        if not depth:
            return position + 1
    return len(raw)
