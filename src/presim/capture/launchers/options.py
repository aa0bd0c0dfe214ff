"""Reads a launcher's options as the launcher's own parser would, up to the program that it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from presim.errors import InputError


def names(text: str = "", **renamed: str) -> dict[str, str]:
    """Options by how they are spelled: ``names("nnodes role", m="module")``."""
    return {**{word: word for word in text.split()}, **{key.replace("_", "-"): name for key, name in renamed.items()}}


@dataclasses.dataclass(frozen=True)
class Grammar:
    """The options of one launcher by how they are spelled (no leading dashes, ``-`` for ``_``)."""

    launcher: str
    flags: Mapping[str, str]  # without a value
    values: Mapping[str, str]  # with one value
    pairs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # with two

    def find(self, word: str) -> tuple[str, int] | None:
        """An option's name and how many values follow it; unique beginnings of long options will do."""
        spelled = word.lstrip("-").replace("_", "-")
        tables = (self.flags, self.values, self.pairs)
        for arity, table in enumerate(tables):
            if spelled in table:
                return table[spelled], arity
        if not word.startswith("--"):
            return None
        near = {
            (name, arity)
            for arity, table in enumerate(tables)
            for key, name in table.items()
            if key.startswith(spelled)
        }
        return near.pop() if len(near) == 1 else None


@dataclasses.dataclass
class Options:
    """What was read."""

    launcher: str
    given: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # name -> values, in order; flags: ""
    program: list[str] = dataclasses.field(default_factory=list)  # what the launcher starts, and its arguments
    unknown: list[str] = dataclasses.field(default_factory=list)

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        return name in self.given

    def text(self, name: str, default: str = "") -> str:
        """The last value of an option."""
        return self.given[name][-1] if name in self.given else default

    def count(self, name: str) -> int | None:
        """An option's value as a number of things, at least one; None where it was not given."""
        text = self.text(name)
        if not text:
            return None
        if not text.isdigit() or int(text) < 1:
            raise InputError(f"{self.launcher}: --{name} {text} must be a whole number of at least 1; correct it")
        return int(text)

    def notes(self) -> tuple[str, ...]:
        """What was not understood."""
        if not self.unknown:
            return ()
        return (f"presim does not know, and ignored, of {self.launcher}: {', '.join(self.unknown)}.",)


def parse(grammar: Grammar, words: Sequence[str]) -> Options:
    """Read options until the first word that is none.

    Raises:
        InputError: an option lacks its value, or nothing is left to start.
    """
    options, rest = Options(grammar.launcher), list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        _take(grammar, options, word, rest)
    if not rest:
        raise InputError(f"the {grammar.launcher} command names no program to start; put it behind the options")
    options.program = rest
    return options


def _take(grammar: Grammar, options: Options, word: str, rest: list[str]) -> None:
    spelled, equals, value = word.partition("=")
    found = grammar.find(spelled)
    if found is None and not word.startswith("--") and grammar.values.get(word[1:2]):
        options.given.setdefault(grammar.values[word[1]], []).append(word[2:])  # -N16
        return
    if found is None:
        options.unknown.append(word)
        if not equals and _is_value(rest):
            options.unknown[-1] += f" {rest.pop(0)}"
        return
    name, arity = found
    taken = [value] if equals else []
    while len(taken) < arity:
        if not rest:
            raise InputError(f"{grammar.launcher}: option {word} lacks its value; add it")
        taken.append(rest.pop(0))
    options.given.setdefault(name, []).append("=".join(taken))


def _is_value(rest: Sequence[str]) -> bool:
    """Whether an unknown option's next word is its value rather than the program."""
    return len(rest) > 1 and not rest[0].startswith("-") and not rest[0].endswith(".py")
