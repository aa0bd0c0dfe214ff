"""Reads space files: those that are shipped, by name, and the user's own, by path."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

import msgspec

from presim.errors import InputError
from presim.search.spaces.expression import Expression
from presim.search.trials.trial import Value, said


class Knob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A knob of a framework's command."""

    values: list[Value]  # the first one is what the framework does by itself
    words: list[str] = []  # what is put into the command, with {} where the value goes; the first value needs none
    by_value: dict[str, list[str]] = {}  # the same, of each value
    field: str = ""  # what plans call it, where that is not its name
    as_field: dict[str, Value] = {}  # its values there, where they are others


class Constraint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a point must keep."""

    that: str  # a condition over knobs and facts
    why: str


class SpaceFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The knobs of a framework, and which points there are."""

    about: str
    knobs: dict[str, Knob]
    constraints: list[Constraint] = []
    plan: dict[str, Value] = {}  # fields of plans that the framework trains, where it is composed
    facts: dict[str, Value] = {}  # what constraints know besides knobs, where the user says nothing


def shipped() -> list[str]:
    """Names of the spaces that come with presim."""
    folder = resources.files("presim.search.spaces")
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def read_space(name: str) -> SpaceFile:
    """A space by name, or the file at a path.

    Raises:
        InputError: there is none, or it is wrong.
    """
    if name in shipped():
        text = resources.files("presim.search.spaces").joinpath(f"{name}.toml").read_text()
    elif not name.endswith(".toml"):
        raise InputError(f"no space {name!r}; there are {', '.join(shipped())}, or name a TOML file")
    else:
        text = _text(name)
    try:
        found = msgspec.convert(tomllib.loads(text), SpaceFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{name} is no space: {error}; correct it") from error
    _check(found, name)
    return found


def _text(name: str) -> str:
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the space {name}: {error}; name another file") from error


def _check(space: SpaceFile, name: str) -> None:
    for knob, described in space.knobs.items():
        values = [said(value) for value in described.values]
        if not values or len(set(values)) < len(values):
            raise InputError(f"{name}: knob {knob} needs values, each once; correct it")
        if unknown := [value for value in described.by_value if value not in values]:
            raise InputError(
                f"{name}: knob {knob} has words for {unknown[0]!r}, which is none of its values; correct it"
            )
    for constraint in space.constraints:
        Expression(constraint.that)
