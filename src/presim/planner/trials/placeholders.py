"""Placeholders of a command, ``{knob}``, and the words that take their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from presim.planner.trials.trial import Value, format_value

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def placeholders(command: Sequence[str]) -> list[str]:
    """Placeholder names in braces, in order, without duplicates.

    >>> placeholders(["train.py", "--tp", "{tp}", "--batch={mbs}", "{tp}"])
    ['tp', 'mbs']
    """
    return list(dict.fromkeys(name for word in command for name in _PLACEHOLDER.findall(word)))


def fill_placeholders(
    command: Sequence[str], point: Mapping[str, Value], words: Mapping[str, Mapping[str, Sequence[str]]] | None = None
) -> list[str]:
    """The command with values for its placeholders; other braces stay as they are.

    >>> fill_placeholders(["--tp={tp}", '{"a": 1}'], {"tp": 4})
    ['--tp=4', '{"a": 1}']

    ``words`` maps a placeholder that is a whole word to several words, or none.

    >>> fill_placeholders(["a.py", "{sp}"], {"sp": True}, {"sp": {"true": ["--sequence-parallel"], "false": []}})
    ['a.py', '--sequence-parallel']
    """

    def value(match: re.Match[str]) -> str:
        return format_value(point[match[1]]) if match[1] in point else match[0]

    filled_words: list[str] = []
    for word in command:
        name = word[1:-1] if word.startswith("{") and word.endswith("}") else ""
        several = (words or {}).get(name, {}).get(format_value(point[name])) if name in point else None
        filled_words += [_PLACEHOLDER.sub(value, word)] if several is None else several
    return filled_words
