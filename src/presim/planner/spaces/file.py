"""Read space files: shipped ones by name, the user's own by path."""

from __future__ import annotations

from importlib import resources

import msgspec

from presim.errors import InputError
from presim.planner.spaces.expression import Expression
from presim.planner.trials.trial import Value, format_value
from presim.system.files import FormatError, convert, decode_toml, read_text


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A knob of a framework's command."""

    values: list[Value]  # the first is the framework's default
    words: list[str] = []  # words added to the command, {} stands for the value; the first value may have none
    by_value: dict[str, list[str]] = {}  # words for each value, instead of `words`
    field: str = ""  # plan field, if its name differs
    as_field: dict[str, Value] = {}  # knob value -> plan value, where they differ


class Constraint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition that every legal point meets."""

    that: str  # a condition over knobs and facts
    why: str


class SpaceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The knobs of a framework and the constraints on their values."""

    about: str
    knobs: dict[str, Knob]
    constraints: list[Constraint] = []
    plan: dict[str, Value] = {}  # fixed plan fields of this framework, for composed points
    facts: dict[str, Value] = {}  # default facts for constraints


def shipped_spaces() -> list[str]:
    """Names of the spaces shipped with presim."""
    folder = resources.files("presim.planner.spaces")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_space(name: str) -> SpaceFile:
    """Read a shipped space by name, or a space file by path.

    Raises:
        InputError: the space does not exist or is invalid.
    """
    if name in shipped_spaces():
        text = resources.files("presim.planner.spaces").joinpath(f"{name}.toml").read_text()
    elif not name.endswith(".toml"):
        raise InputError(f"no space {name!r}; use one of {', '.join(shipped_spaces())}, or the path of a TOML file")
    else:
        text = read_text(name, "name another space")
    try:
        space = convert(decode_toml(text), SpaceFile)
    except FormatError as error:
        raise InputError(f"{name} is not a valid space file: {error}; correct it") from error
    _check(space, name)
    return space


def _check(space: SpaceFile, name: str) -> None:
    for knob, described in space.knobs.items():
        values = [format_value(value) for value in described.values]
        if not values or len(set(values)) < len(values):
            raise InputError(f"{name}: knob {knob} needs values without duplicates; correct it")
        if unknown := [value for value in described.by_value if value not in values]:
            raise InputError(
                f"{name}: knob {knob} has words for {unknown[0]!r}, which is not one of its values; correct it"
            )
    for constraint in space.constraints:
        Expression(constraint.that)
