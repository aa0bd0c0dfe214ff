"""Apply a space file: build the request's space, the command words of each value, and legality rules."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import msgspec

from presim.errors import InputError
from presim.planner.space import Space
from presim.planner.spaces.expression import Expression
from presim.planner.spaces.file import Knob, SpaceFile
from presim.planner.trials.placeholders import placeholders
from presim.planner.trials.trial import Value, format_value

WHOLE = "{space}"  # placeholder for the words of all knobs


class Rule(msgspec.Struct, frozen=True):
    """A constraint with the known facts."""

    that: str
    why: str
    facts: dict[str, Value]

    def broken(self, point: Mapping[str, Value]) -> str:
        """Why a point is illegal, with the condition and its numbers; empty if it is legal."""
        expression = _parsed(self.that)
        values_by_name = {**self.facts, **point}
        if expression.holds(values_by_name):
            return ""
        return f"{self.why}: {expression.with_numbers(values_by_name)}"


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Expression:
    """Parse a constraint once for all points."""
    return Expression(text)


def checkable_rules(
    space: SpaceFile, knobs: Sequence[str], facts: Mapping[str, Value]
) -> tuple[tuple[Rule, ...], list[str]]:
    """The checkable constraints, and a note for each that lacks a fact."""
    facts_by_name = {**space.facts, **facts}
    checked, notes = [], []
    for constraint in space.constraints:
        names = Expression(constraint.that).names
        missing = [name for name in names if name not in facts_by_name and name not in knobs]
        if missing:
            notes.append(f"Not checked, because {missing[0]} is not given: {constraint.why} ({constraint.that}).")
        else:
            used = {name: facts_by_name[name] for name in names if name in facts_by_name and name not in knobs}
            checked.append(Rule(constraint.that, constraint.why, used))
    return tuple(checked), notes


def with_placeholders(space: SpaceFile, command: Sequence[str]) -> list[str]:
    """The command with placeholders for all knobs; missing ones go to `{space}`, or to the end of the command.

    Raises:
        InputError: a knob has neither a placeholder in the command nor words in the space.
    """
    user_placeholders = [name for name in placeholders(command) if name != "space"]
    if user_placeholders and WHOLE not in command:
        return list(command)
    wordless = [
        name
        for name, knob in space.knobs.items()
        if not knob.words and not knob.by_value and name not in user_placeholders
    ]
    if wordless:
        raise InputError(
            f"the space does not say how to set {wordless[0]}: put {{{wordless[0]}}} into the command where its value "
            "goes"
        )
    words = [f"{{{name}}}" for name in space.knobs if name not in user_placeholders]
    if WHOLE not in command:
        return [*command, *words]
    index = list(command).index(WHOLE)
    return [*command[:index], *words, *command[index + 1 :]]


def words_of(
    space: SpaceFile, command: Sequence[str], varied: Mapping[str, Sequence[Value]]
) -> dict[str, dict[str, list[str]]]:
    """For each knob whose placeholder is a whole word: the command words of each value."""
    whole_word_knobs = [name for name in space.knobs if f"{{{name}}}" in command]
    return {
        name: {format_value(value): _words(space.knobs[name], value) for value in varied[name]}
        for name in whole_word_knobs
        if space.knobs[name].words or space.knobs[name].by_value
    }


def _words(knob: Knob, value: Value) -> list[str]:
    if knob.by_value:
        return knob.by_value.get(format_value(value), [])
    return [word.replace("{}", format_value(value)) for word in knob.words]


def space_of(space: SpaceFile, command: Sequence[str], varied: Mapping[str, tuple[Value, ...]]) -> Space:
    """Knobs that the command sets, with the user's values if given; other knobs keep their first value."""
    holders = placeholders(command)
    varied_values: dict[str, tuple[Value, ...]] = {}
    fixed: dict[str, Value] = {}
    for name, knob in space.knobs.items():
        values = _typed(name, knob, varied[name]) if name in varied else tuple(knob.values)
        if name in holders:
            varied_values[name] = values
        else:
            fixed[name] = values[0]
    varied_values |= {name: values for name, values in varied.items() if name not in space.knobs and name in holders}
    return Space(varied_values, fixed)


def _typed(name: str, knob: Knob, values: Sequence[Value]) -> tuple[Value, ...]:
    """The user's values, converted to the types of the space's values.

    Raises:
        InputError: the space has no words for a value.
    """
    value_by_text = {format_value(value): value for value in knob.values}
    if knob.by_value and (unknown := [value for value in values if format_value(value) not in value_by_text]):
        raise InputError(
            f"{name} = {format_value(unknown[0])} is not a value that the space has words for: use "
            f"{', '.join(value_by_text)}"
        )
    return tuple(value_by_text.get(format_value(value), value) for value in values)
