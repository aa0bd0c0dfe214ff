"""Attacks on numeric options: every verb's, with numbers at and beyond their bounds, and words that are none."""

from __future__ import annotations

import random
import re

import click

from presim.cli import main
from presim.cli.numbers import Real, Whole
from support.reliability.command_lines import GOOD

_EDGES_OF_BITS = tuple(str(2**power + step) for power in (31, 53, 63, 64) for step in (-1, 0))
_WORDS = (
    "nan", "inf", "-inf", "1e308", "-1e308", "1e-308", "5e-324", "1e-12", "1e12", "-1", "0", "0.5", "true", "", " ",
    "1_0", "\u0661\u0662", "0x10", "1e400", "9" * 26, "9" * 400, "9" * 5000, *_EDGES_OF_BITS,
)  # fmt: skip
_IN_WORDS = re.compile(r"\d+(?:\.\d+)?")
_BUDGET = "--budget 5s,2GiB"  # what is within its bounds runs, and may take as long


def numeric_options() -> list[tuple[str, str, Whole | Real]]:
    """All (verb, option, type) of the command line; a verb may be of two words."""
    rows: list[tuple[str, str, Whole | Real]] = []
    for verb in main.VERBS:
        command = main.cli.get_command(click.Context(main.cli), verb)
        assert command is not None
        commands = {verb: command}
        if isinstance(command, click.Group):
            commands = {f"{verb} {name}": part for name, part in command.commands.items()}
        for words, part in commands.items():
            rows += [
                (words, option.opts[0], option.type)
                for option in part.params
                if isinstance(option, click.Option) and isinstance(option.type, Whole | Real)
            ]
    return rows


def line(number: int) -> list[str]:
    """The command line of a number: always the same."""
    chance = random.Random(f"option {number}")
    if number % 3 == 2:
        return _number_in_words(chance)
    rows = numeric_options()
    verb, option, kind = rows[number % len(rows)]
    return [*_base(verb), option, chance.choice((*_WORDS, *_edges(kind, chance)))]


def _base(verb: str) -> list[str]:
    good = next((words for words in GOOD if words.startswith(f"{verb} ")), f"{verb} missing")
    return f"{good} {_BUDGET}".split() if verb == "serve" else good.split()


def _edges(kind: Whole | Real, chance: random.Random) -> tuple[str, ...]:
    """The bounds of a type, the numbers beside them, and a number of any size between."""
    least, most = kind.quantity.least, kind.quantity.greatest
    between = max(least, 1e-3) * (most / max(least, 1e-3)) ** chance.random()
    if isinstance(kind, Whole):
        return tuple(str(int(value)) for value in (least, most, least - 1, most + 1, between)) * 3
    return tuple(f"{value:.17g}" for value in (least, most, least - 1, most * 2, between)) * 3


def _number_in_words(chance: random.Random) -> list[str]:
    """A number within a word (`gemm=0.5`, `0:10`, `64MiB`) of a good line is another."""
    words = chance.choice(GOOD).split()
    places = [place for place, word in enumerate(words[1:], 1) if _IN_WORDS.search(word) and not _is_name(word)]
    if places:
        place = chance.choice(places)
        match = chance.choice(list(_IN_WORDS.finditer(words[place])))
        value = chance.choice(_WORDS)
        words[place] = words[place][: match.start()] + value + words[place][match.end() :]
    return [*words, *_BUDGET.split()] if words[0] == "serve" else words


def _is_name(word: str) -> bool:
    return word.endswith((".json", ".toml", ".graph", ".py", ".log", ".csv")) or word.startswith(("h100", "llama"))
