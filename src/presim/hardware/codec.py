"""Reads and writes catalogue entries as TOML tables, with units in the keys.

The fields in ``schema.py`` and ``cluster.py`` define the key, the factor and the limits of each figure.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from presim.errors import InputError
from presim.files import FormatError, decode_toml, read_text
from presim.hardware.schema import Source, Sourced

P = TypeVar("P", bound=Sourced)
GUIDE = "docs/guide/hardware.md"
_LEAST = 1e-3  # of a figure that is not 0, in the unit of its key: no link carries less than 1 MB/s


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a TOML file and its field."""

    key: str
    field: str
    scale: float  # value in TOML * scale = value inside; an integer: the value inside is an integer
    figure: bool  # a quantity, which needs a source
    required: bool
    text: str


@functools.cache
def keys(kind: type[Sourced]) -> tuple[Key, ...]:
    """The keys of a kind's files, in the order of its fields."""
    found = []
    for field in msgspec.structs.fields(kind):
        meta = next(a for a in typing.get_args(field.type) if isinstance(a, msgspec.Meta))
        extra: dict[str, Any] = meta.extra or {}
        required = field.required and field.name != "sources"
        key = extra.get("key", field.name)
        scale, is_figure = extra.get("scale", 1.0), extra.get("figure", False)
        found.append(Key(key, field.name, scale, is_figure, required, meta.description or ""))
    return tuple(found)


def load_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return decode_toml(read_text(path, "give the path of a TOML file"))
    except FormatError as error:
        raise InputError(f"{path}: is not TOML ({error}); correct the file, see {GUIDE}.") from error


def from_table(kind: type[P], table: Mapping[str, Any], where: str) -> P:
    """A part from its table. ``where``: name of the file, for messages."""
    known = {key.key: key for key in keys(kind)}
    if unknown := [key for key in table if key not in known]:
        raise InputError(f"{where}: unknown key {unknown[0]}{_nearest(unknown[0], known) or '.'}")
    if missing := [key.key for key in known.values() if key.required and key.key not in table]:
        raise InputError(
            f"{where}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; add the value, "
            f'or base = "<id>" to take it from a {kind.__name__} of the catalogue.'
        )
    fields = {known[key].field: _inside(known[key], value, where) for key, value in table.items()}
    try:
        part = msgspec.convert({"sources": [], **fields}, kind)
    except msgspec.ValidationError as error:
        raise InputError(_invalid(error, known, table, where)) from error
    _check_sources(part, [key for key in known if known[key].figure], where)
    return part


def to_table(part: Sourced) -> dict[str, Any]:
    """The TOML table of a part. ``from_table`` is the inverse."""
    table: dict[str, Any] = {}
    for key in keys(type(part)):
        value = getattr(part, key.field)
        if key.field == "sources":
            value = [{"text": s.text, "keys": list(s.keys), "estimate": s.estimate} for s in value]
        elif key.figure:
            value = outside(key, value)
        table[key.key] = value
    return table


def outside(key: Key, value: float) -> float:
    """The value of a figure in the unit of its TOML key."""
    scaled = value / key.scale
    return int(scaled) if scaled == int(scaled) else float(f"{scaled:.12g}")


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A table merged over its base. Overridden figures lose the base's source."""
    kept = [{**source, "keys": [key for key in source["keys"] if key not in own]} for source in base.get("sources", [])]
    sources = [source for source in kept if source["keys"]] + list(own.get("sources", []))
    return {**base, **own, "sources": sources}


def unsourced(part: Sourced) -> list[str]:
    """Keys of figures without a source."""
    backed = {key for source in part.sources for key in source.keys}
    given = [key.key for key in keys(type(part)) if key.figure and getattr(part, key.field)]
    return [key for key in given if key not in backed]


def _inside(key: Key, value: Any, where: str) -> Any:
    if not key.figure or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if not math.isfinite(value * key.scale):
        raise InputError(f"{where}: {key.key} = {value} is not a possible size; use a number.")
    if 0 < abs(value) < _LEAST and not isinstance(key.scale, int):
        raise InputError(f"{where}: {key.key} = {value} is less than {_LEAST:g}, and not 0; correct the value.")
    scaled = value * key.scale
    if not isinstance(key.scale, int):
        return float(scaled)
    if abs(scaled - round(scaled)) > 1e-6:
        raise InputError(f"{where}: {key.key} = {value} is not a whole number of the smallest unit; round it.")
    return round(scaled)


def _invalid(error: msgspec.ValidationError, known: Mapping[str, Key], table: Mapping[str, Any], where: str) -> str:
    """The message ``file: key = value: expected …``, from msgspec's message on the field."""
    reason, _, path = str(error).partition(" - at `$.")
    field = re.split(r"[.\[`]", path)[0]
    key = next((key for key in known.values() if key.field == field), None)
    if key is None:
        return f"{where}: {error}; correct the value, see {GUIDE}."
    value = table.get(key.key)
    shown = f" = {value!r}" if isinstance(value, (str, int, float)) else ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        bound = re.search(r"([<>])= (\S+)", reason)
        words = {">": "at least", "<": "at most"}
        reason = f"must be {words[bound[1]]} {bound[2]}" if bound else "must be different"
        reason += " in bytes, Hz, ns or FLOP/s" if key.scale != 1 else ""
    return f"{where}: {key.key}{shown}: {reason[0].lower()}{reason[1:]}; correct the value, see {GUIDE}."


def _check_sources(part: Sourced, figures: list[str], where: str) -> None:
    for source in part.sources:
        if unknown := [key for key in source.keys if key not in figures]:
            text = f"{where}: a source has the key {unknown[0]}, which is not a figure{_nearest(unknown[0], figures)}."
            raise InputError(text)


def _nearest(name: str, known: typing.Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else f"; {GUIDE} lists the keys"


__all__ = ["Key", "Source", "from_table", "keys", "load_toml", "merged", "outside", "to_table", "unsourced"]
