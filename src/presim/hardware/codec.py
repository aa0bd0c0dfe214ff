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
from presim.hardware.gpu_schema import ACCELERATOR, DERIVED, GPU, GPU_VENDORS, FigureSource, Gpu, Sourced
from presim.system.files import FormatError, decode_toml, read_text, to_type

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
    only: str = ""  # GPU: required of GPUs, and of no other device; ACCELERATOR: refused for GPUs
    least: float = 0.0  # in files of GPUs, where ``only`` is GPU


@functools.cache
def keys(kind: type[Sourced]) -> tuple[Key, ...]:
    """The keys of a kind's files, in the order of its fields."""
    file_keys = []
    for field in msgspec.structs.fields(kind):
        meta = next(a for a in typing.get_args(field.type) if isinstance(a, msgspec.Meta))
        extra: dict[str, Any] = meta.extra or {}
        required = field.required and field.name != "sources"
        key = extra.get("key", field.name)
        scale, is_figure = extra.get("scale", 1.0), extra.get("figure", False)
        limits = extra.get("only", ""), extra.get("least", 0.0)
        file_keys.append(Key(key, field.name, scale, is_figure, required, meta.description or "", *limits))
    return tuple(file_keys)


def load_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return decode_toml(read_text(path, "give the path of a TOML file"))
    except FormatError as error:
        raise InputError(f"{path}: is not TOML ({error}); correct the file, see {GUIDE}.") from error


def from_table(kind: type[P], table: Mapping[str, Any], location: str) -> P:
    """A part from its table. ``location``: name of the file, for messages."""
    key_by_name = {key.key: key for key in keys(kind)}
    if unknown := [key for key in table if key not in key_by_name]:
        raise InputError(f"{location}: unknown key {unknown[0]}{_nearest(unknown[0], key_by_name) or '.'}")
    is_gpu = table.get("vendor") in GPU_VENDORS
    if foreign := [key for key in table if is_gpu and key_by_name[key].only == ACCELERATOR]:
        raise InputError(f"{location}: {foreign[0]} is a figure of accelerators that are no GPU; leave it out.")
    required = [key.key for key in key_by_name.values() if key.required or (is_gpu and key.only == GPU)]
    if missing := [key for key in required if key not in table]:
        raise InputError(
            f"{location}: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; add the value, "
            f'or base = "<id>" to take it from a {kind.__name__} of the catalogue.'
        )
    for key in (key_by_name[name] for name in table if is_gpu and key_by_name[name].only == GPU):
        value = table[key.key]
        if isinstance(value, (int, float)) and value < key.least:
            raise InputError(
                f"{location}: {key.key} = {value}: must be at least {key.least:g}; correct the value, see {GUIDE}."
            )
    fields = {key_by_name[key].field: _to_field_unit(key_by_name[key], value, location) for key, value in table.items()}
    try:
        part = to_type({"sources": [], **fields}, kind)
    except msgspec.ValidationError as error:
        raise InputError(_invalid(error, key_by_name, table, location)) from error
    _check_sources(part, [key for key in key_by_name if key_by_name[key].figure], location)
    return part


def to_table(part: Sourced) -> dict[str, Any]:
    """The TOML table of a part. ``from_table`` is the inverse."""
    table: dict[str, Any] = {}
    kind = "" if not isinstance(part, Gpu) else GPU if part.is_gpu else ACCELERATOR
    for key in keys(type(part)):
        value = getattr(part, key.field)
        if key.only and key.only != kind and not value:
            continue
        if key.field == "sources":
            value = [{"text": s.text, "keys": list(s.keys), "estimate": s.estimate} for s in value]
        elif key.figure:
            value = to_key_unit(key, value)
        table[key.key] = value
    return table


def to_key_unit(key: Key, value: float) -> float:
    """The value of a figure in the unit of its TOML key."""
    scaled = value / key.scale
    return int(scaled) if scaled == int(scaled) else float(f"{scaled:.12g}")


def merge_tables(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A table merged over its base. Overridden figures lose the base's source."""
    base_sources = [
        {**source, "keys": [key for key in source["keys"] if key not in overrides]}
        for source in base.get("sources", [])
    ]
    sources = [source for source in base_sources if source["keys"]] + list(overrides.get("sources", []))
    return {**base, **overrides, "sources": sources}


def unsourced(part: Sourced) -> list[str]:
    """Keys of figures without a source."""
    backed = {key for source in part.sources for key in source.keys}
    derived = DERIVED if isinstance(part, Gpu) and not part.is_gpu else ()
    figure_names = [
        key.key for key in keys(type(part)) if key.figure and getattr(part, key.field) and key.key not in derived
    ]
    return [key for key in figure_names if key not in backed]


def _to_field_unit(key: Key, value: Any, location: str) -> Any:
    if not key.figure or isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if not math.isfinite(value * key.scale):
        raise InputError(f"{location}: {key.key} = {value} is not a possible size; use a number.")
    if 0 < abs(value) < _LEAST and not isinstance(key.scale, int):
        raise InputError(f"{location}: {key.key} = {value} is less than {_LEAST:g}, and not 0; correct the value.")
    scaled = value * key.scale
    if not isinstance(key.scale, int):
        return float(scaled)
    if abs(scaled - round(scaled)) > 1e-6:
        raise InputError(f"{location}: {key.key} = {value} is not a whole number of the smallest unit; round it.")
    return round(scaled)


def _invalid(
    error: msgspec.ValidationError, key_by_name: Mapping[str, Key], table: Mapping[str, Any], location: str
) -> str:
    """The message ``file: key = value: expected …``, from msgspec's message on the field."""
    reason, _, path = str(error).partition(" - at `$.")
    field = re.split(r"[.\[`]", path)[0]
    key = next((key for key in key_by_name.values() if key.field == field), None)
    if key is None:
        return f"{location}: {error}; correct the value, see {GUIDE}."
    value = table.get(key.key)
    shown = f" = {value!r}" if isinstance(value, (str, int, float)) else ""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        bound = re.search(r"([<>])= (\S+)", reason)
        words = {">": "at least", "<": "at most"}
        reason = f"must be {words[bound[1]]} {bound[2]}" if bound else "must be different"
        reason += " in bytes, Hz, ns or FLOP/s" if key.scale != 1 else ""
    return f"{location}: {key.key}{shown}: {reason[0].lower()}{reason[1:]}; correct the value, see {GUIDE}."


def _check_sources(part: Sourced, figures: list[str], location: str) -> None:
    for source in part.sources:
        if unknown := [key for key in source.keys if key not in figures]:
            hint = _nearest(unknown[0], figures)
            raise InputError(f"{location}: a source has the key {unknown[0]}, which is not a figure{hint}.")


def _nearest(name: str, key_names: typing.Iterable[str]) -> str:
    similar_names = difflib.get_close_matches(name, list(key_names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(similar_names)}?" if similar_names else f"; {GUIDE} lists the keys"


__all__ = [
    "FigureSource",
    "Key",
    "from_table",
    "keys",
    "load_toml",
    "merge_tables",
    "to_key_unit",
    "to_table",
    "unsourced",
]
