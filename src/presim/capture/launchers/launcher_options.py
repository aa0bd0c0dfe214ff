"""Parse a launcher's options like the launcher itself, up to the program that it starts."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence

from presim.errors import InputError

_ALIKE = 0.85  # of an option and one that was probably meant
_MOST_DIGITS = 9  # of a number of nodes or processes; Python refuses to read numbers of thousands of digits


def check_slip(launcher: str, kind: str, word: str, option_names: Iterable[str]) -> None:
    """Refuse an unknown word that looks like a slip of a known one: its effect would be missing.

    Raises:
        InputError: it does.
    """
    if alike := difflib.get_close_matches(word, sorted(option_names), 1, _ALIKE):
        raise InputError(f"{launcher} has no {kind} {word}; did you mean {alike[0]}?")


def whole_number(text: str) -> int | None:
    """The number that a text of up to nine decimal digits writes; None if it is anything else."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def names(text: str = "", **renamed: str) -> dict[str, str]:
    """Spelling -> option: ``names("nnodes role", m="module")``."""
    return {**{word: word for word in text.split()}, **{key.replace("_", "-"): name for key, name in renamed.items()}}


@dataclasses.dataclass(frozen=True)
class Grammar:
    """The options of one launcher by spelling (no leading dashes, ``-`` for ``_``)."""

    launcher: str
    flags: Mapping[str, str]  # without a value
    values: Mapping[str, str]  # with one value
    pairs: Mapping[str, str] = dataclasses.field(default_factory=dict)  # with two values
    is_complete: bool = False  # whether these are all: then what resembles one of them is a slip

    def find(self, word: str) -> tuple[str, int] | None:
        """An option's name and number of values; unique prefixes of long options are accepted."""
        spelled = word.lstrip("-").replace("_", "-")
        tables = (self.flags, self.values, self.pairs)
        for arity, table in enumerate(tables):
            if spelled in table:
                return table[spelled], arity
        if not word.startswith("--"):
            return None
        completions = {
            (name, arity)
            for arity, table in enumerate(tables)
            for key, name in table.items()
            if key.startswith(spelled)
        }
        return completions.pop() if len(completions) == 1 else None


@dataclasses.dataclass
class Options:
    """Parsed options."""

    launcher: str
    values: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # name -> values, in order; flags: ""
    program: list[str] = dataclasses.field(default_factory=list)  # the program to start and its arguments
    unknown: list[str] = dataclasses.field(default_factory=list)

    def has(self, name: str) -> bool:
        """Whether an option is present."""
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        """The last value of an option."""
        return self.values[name][-1] if name in self.values else default

    def count(self, name: str) -> int | None:
        """An option's value as a count of at least one; None if it is absent.

        Raises:
            InputError: the value is not a whole number of at least 1.
        """
        text = self.text(name)
        if not text:
            return None
        if not (count := whole_number(text)):
            raise InputError(
                f"{self.launcher}: --{name} {text[:80]} must be a whole number from 1 to 999,999,999; correct it"
            )
        return count

    def notes(self) -> tuple[str, ...]:
        """A note on unknown options."""
        if not self.unknown:
            return ()
        return (f"presim ignored unknown options of {self.launcher}: {', '.join(self.unknown)}.",)


def cyclic_note(launcher: str, option: str) -> str:
    """A note on an option that places consecutive ranks on different nodes."""
    return (
        f"{launcher}'s {option} places consecutive ranks on different nodes; presim places them on the same one, so "
        "groups of neighbouring ranks communicate faster here."
    )


def parse(grammar: Grammar, words: Sequence[str]) -> Options:
    """Parse options up to the first word that is not an option.

    Raises:
        InputError: an option's value is missing, or there is no program to start.
    """
    options, remaining_words = Options(grammar.launcher), list(words)
    while remaining_words and remaining_words[0].startswith("-") and remaining_words[0] != "-":
        word = remaining_words.pop(0)
        if word == "--":
            break
        _read_option(grammar, options, word, remaining_words)
    if not remaining_words:
        raise InputError(f"the {grammar.launcher} command has no program to start; add it after the options")
    options.program = remaining_words
    return options


def _read_option(grammar: Grammar, options: Options, word: str, remaining_words: list[str]) -> None:
    spelled, equals, value = word.partition("=")
    option = grammar.find(spelled)
    if option is None and not word.startswith("--") and grammar.values.get(word[1:2]):
        options.values.setdefault(grammar.values[word[1]], []).append(word[2:])  # -N16
        return
    if option is None:
        if grammar.is_complete:
            long_names = [f"--{name}" for table in (grammar.flags, grammar.values, grammar.pairs) for name in table]
            check_slip(grammar.launcher, "option", spelled.replace("_", "-"), long_names)
        options.unknown.append(word)
        if not equals and _is_value(remaining_words):
            options.unknown[-1] += f" {remaining_words.pop(0)}"
        return
    name, arity = option
    option_values = [value] if equals else []
    while len(option_values) < arity:
        if not remaining_words:
            raise InputError(f"{grammar.launcher}: option {word} needs a value; add it")
        option_values.append(remaining_words.pop(0))
    options.values.setdefault(name, []).append("=".join(option_values))


def _is_value(remaining_words: Sequence[str]) -> bool:
    """Whether the word after an unknown option is its value rather than the program."""
    return (
        len(remaining_words) > 1 and not remaining_words[0].startswith("-") and not remaining_words[0].endswith(".py")
    )
