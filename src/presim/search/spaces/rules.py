"""A space file put to use: the request's space, the words of each value, and which points are illegal."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import msgspec

from presim.errors import InputError
from presim.search.space import Space
from presim.search.spaces.expression import Expression
from presim.search.spaces.file import Knob, SpaceFile
from presim.search.trials.evaluator import placeholders
from presim.search.trials.trial import Value, said

WHOLE = "{space}"  # stands for the words of all knobs


class Rule(msgspec.Struct, frozen=True):
    """A constraint with what is known besides the knobs."""

    that: str
    why: str
    facts: dict[str, Value]

    def broken(self, point: Mapping[str, Value]) -> str:
        """Why a point is illegal, with the equation and its numbers; empty where it is not."""
        expression = _parsed(self.that)
        known = {**self.facts, **point}
        if expression.holds(known):
            return ""
        return f"{self.why}: {expression.with_numbers(known)}"


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Expression:
    """Once for all points."""
    return Expression(text)


def rules(space: SpaceFile, knobs: Sequence[str], facts: Mapping[str, Value]) -> tuple[tuple[Rule, ...], list[str]]:
    """The constraints, and a sentence for each that cannot be checked because a fact is not known."""
    known = {**space.facts, **facts}
    checked, notes = [], []
    for constraint in space.constraints:
        names = Expression(constraint.that).names
        missing = [name for name in names if name not in known and name not in knobs]
        if missing:
            notes.append(f"Not checked, as {missing[0]} is not said: {constraint.why} ({constraint.that}).")
        else:
            used = {name: known[name] for name in names if name in known and name not in knobs}
            checked.append(Rule(constraint.that, constraint.why, used))
    return tuple(checked), notes


def placed(space: SpaceFile, command: Sequence[str]) -> list[str]:
    """The command with placeholders for the knobs: its own, or those of the space at `{space}` or at its end.

    Raises:
        InputError: the space has no words for a knob that nothing in the command places.
    """
    own = [name for name in placeholders(command) if name != "space"]
    if own and WHOLE not in command:
        return list(command)
    wordless = [name for name, knob in space.knobs.items() if not knob.words and not knob.by_value and name not in own]
    if wordless:
        raise InputError(
            f"the space has no words for {wordless[0]}: put {{{wordless[0]}}} into the command where its value goes"
        )
    words = [f"{{{name}}}" for name in space.knobs if name not in own]
    if WHOLE not in command:
        return [*command, *words]
    at = list(command).index(WHOLE)
    return [*command[:at], *words, *command[at + 1 :]]


def words_of(
    space: SpaceFile, command: Sequence[str], varied: Mapping[str, Sequence[Value]]
) -> dict[str, dict[str, list[str]]]:
    """Of each knob that has a word of the command to itself: what its values are there."""
    alone = [name for name in space.knobs if f"{{{name}}}" in command]
    return {
        name: {said(value): _words(space.knobs[name], value) for value in varied[name]}
        for name in alone
        if space.knobs[name].words or space.knobs[name].by_value
    }


def _words(knob: Knob, value: Value) -> list[str]:
    if knob.by_value:
        return knob.by_value.get(said(value), [])
    return [word.replace("{}", said(value)) for word in knob.words]


def space_of(space: SpaceFile, command: Sequence[str], varied: Mapping[str, tuple[Value, ...]]) -> Space:
    """The knobs that the command places, with the user's values where said; the others keep their first value."""
    holders = placeholders(command)
    chosen: dict[str, tuple[Value, ...]] = {}
    fixed: dict[str, Value] = {}
    for name, knob in space.knobs.items():
        values = _typed(name, knob, varied[name]) if name in varied else tuple(knob.values)
        if name in holders:
            chosen[name] = values
        else:
            fixed[name] = values[0]
    chosen |= {name: values for name, values in varied.items() if name not in space.knobs and name in holders}
    return Space(chosen, fixed)


def _typed(name: str, knob: Knob, values: Sequence[Value]) -> tuple[Value, ...]:
    """The user's values, as the space has them where it does.

    Raises:
        InputError: the space has words for its own values only.
    """
    known = {said(value): value for value in knob.values}
    if knob.by_value and (unknown := [value for value in values if said(value) not in known]):
        raise InputError(f"{name} = {said(unknown[0])} is none of {', '.join(known)}, which the space has words for")
    return tuple(known.get(said(value), value) for value in values)
