"""Knobs of a search: names, short names, and the default values to try for plan fields."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from presim.composition.plan import Plan
from presim.errors import InputError
from presim.planner.trials.trial import Value, format_value

# Short names, as used by launch commands -> fields of a plan.
SHORT = {
    "tp": "tensor",
    "mbs": "micro_batch",
    "seq": "sequence",
    "sp": "sequence_parallel",
    "pp": "pipeline",
    "vpp": "virtual",
    "cp": "context",
    "ep": "expert",
    "dp-style": "data_style",
    "gbs": "global_batch",
    "global-batch": "global_batch",
}
CLUSTER = ("gpu", "node", "fabric", "nodes", "gpus_per_node", "world_size")
_COUNTS = ("nodes", "gpus_per_node", "world_size")
_MOST_TRIED = 64  # largest degree tried


@dataclasses.dataclass(frozen=True)
class Extent:
    """Upper bounds for the degrees to try."""

    world: int  # GPUs of the largest cluster
    domain: int  # GPUs of one NVLink domain: a node or a rack
    layers: int
    experts: int
    global_batch: int | None


def _degrees(limit: int) -> list[Value]:
    """Powers of two up to a bound.

    >>> _degrees(12)
    [1, 2, 4, 8]
    """
    return [1 << power for power in range(max(limit, 1).bit_length()) if 1 << power <= min(limit, _MOST_TRIED)]


# Fields that vary unless the user fixes them; other fields keep the plan's default. The search never varies fields #
# that change the training itself (optimizer, clipping, sequence).
FREE: Mapping[str, Callable[[Extent], list[Value]]] = {
    "tensor": lambda extent: _degrees(extent.domain),
    "pipeline": lambda extent: _degrees(min(extent.layers, extent.world, 16) if extent.global_batch else 1),
    "virtual": lambda extent: _degrees(min(extent.layers, 4) if extent.global_batch else 1),
    "sequence_parallel": lambda extent: [False, True],
    "context": lambda extent: _degrees(min(extent.domain, 8)),
    "expert": lambda extent: _degrees(min(extent.experts, extent.world)),
    "micro_batch": lambda extent: _degrees(min(extent.global_batch or 8, 8)),
    "recompute": lambda extent: _choices("recompute"),
    "reshard": lambda extent: [True, False],
    # no DDP: it has no fp32 master weights, so training differs
    "data_style": lambda extent: ["fsdp2", "hsdp", "zero1"],
    "shard": lambda extent: [0, extent.domain],
}


def fields() -> dict[str, Any]:
    """Plan fields and their types."""
    return typing.get_type_hints(Plan)


def field_of(name: str) -> str:
    """The knob for a name: a plan field, a cluster option, or the user's own placeholder."""
    name = name.strip().removeprefix("--")
    full = SHORT.get(name, name.replace("-", "_"))
    return SHORT.get(full, full)


def check_known(name: str) -> None:
    """Raise if neither plans nor clusters have a knob.

    Raises:
        InputError: the names that come nearest, or where the names are listed.
    """
    knob_names = {*fields(), *CLUSTER, "global_batch"}
    if name in knob_names:
        return
    similar_names = difflib.get_close_matches(name, sorted({*knob_names, *SHORT}), n=3)
    if similar_names:
        raise InputError(f"no knob {name!r}; did you mean {' or '.join(similar_names)}?")
    raise InputError(
        f"no knob {name!r}: a cluster has {', '.join(CLUSTER)}; `presim search --help` lists the knobs of a plan, "
        "such as --tp"
    )


def short(name: str) -> str:
    """The display name of a knob.

    >>> short("tensor"), short("reshard")
    ('tp', 'reshard')
    """
    return next((alias for alias, field in SHORT.items() if field == name), name)


def open_knobs(fixed: Mapping[str, object], extent: Extent) -> dict[str, list[Value]]:
    """Knobs that the user left open, with the values to try."""
    plan_fields = fields()
    return {name: values(extent) for name, values in FREE.items() if name in plan_fields and name not in fixed}


def read_value(name: str, text: str) -> Value:
    """Parse a value of a plan field or cluster option.

    Raises:
        InputError: the field does not allow this value.
    """
    if name in _COUNTS:
        return _whole(name, text)
    if name in CLUSTER:
        return text
    if name == "passes":
        return _passes(text)
    hint = fields().get(name)
    if hint is None:
        return guess(text)
    choices = _choices(name)
    if choices:
        if text.lower() not in map(_word, choices):
            listed = ", ".join(map(_word, choices))
            raise InputError(f"{short(name)} = {text!r} is not one of {listed}; correct --vary")
        return next(choice for choice in choices if _word(choice) == text.lower())
    least = 0 if getattr(Plan(sequence=1), name) == 0 else 1
    return _whole(name, text, least) if _is_int(hint) else guess(text) if not _is_text(hint) else text


def _passes(text: str) -> str:
    """Check the names of passes, joined by ``+``; ``none`` is no pass.

    Raises:
        InputError: a pass is unknown.
    """
    from presim.composition.passes import registry

    for name in text.split("+") if text != "none" else ():
        if ":" not in name and name not in registry.names():
            raise InputError(
                f"passes = {text!r} has no pass {name!r}; use none, or {', '.join(registry.names())}, joined by +, or "
                "package.module:function"
            )
    return text


def guess(text: str) -> Value:
    """Parse a value of a user-defined knob: a number if it looks like one, else text.

    >>> guess("4"), guess("0.5"), guess("full")
    (4, 0.5, 'full')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _whole(name: str, text: str, least: int = 1) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise InputError(f"{short(name)} = {text!r} must be a whole number; correct it") from error
    if number < least:
        raise InputError(f"{short(name)} = {number} must be at least {least}; correct it")
    return number


def _choices(name: str) -> list[Value]:
    """All values of a field with a small set of choices."""
    hint = fields().get(name)
    if hint is bool:
        return [True, False]
    parts = typing.get_args(hint) if typing.get_origin(hint) is not Literal else (hint,)
    return [value for part in parts if typing.get_origin(part) is Literal for value in typing.get_args(part)]


def allowed(name: str, value: Value) -> bool:
    """Whether a plan field accepts a value."""
    try:
        return read_value(name, format_value(value)) == value
    except InputError:
        return False


def _word(value: Value) -> str:
    return str(value).lower()


def _is_int(hint: Any) -> bool:
    return hint is int or int in typing.get_args(hint)


def _is_text(hint: Any) -> bool:
    return hint is str or str in typing.get_args(hint)


class Field(msgspec.Struct, frozen=True):
    """The plan field that a knob of a framework's command corresponds to."""

    name: str
    values: dict[str, Value] = {}  # knob value -> plan value, where they differ


def to_plan_fields(point: Mapping[str, Value], fields_by_knob: Mapping[str, Field]) -> dict[str, Value]:
    """Translate a point from framework knobs to plan fields; knobs without a plan field are dropped.

    >>> to_plan_fields({"local_batch": 2, "seed": 1}, {"local_batch": Field("micro_batch")})
    {'micro_batch': 2}
    """
    if not fields_by_knob:
        return dict(point)
    plan_values = {
        name: value
        for name, value in point.items()
        if name not in fields_by_knob and (name in _FIELDS or name in CLUSTER)
    }
    for knob, field in fields_by_knob.items():
        plan_values[field.name] = field.values.get(format_value(point[knob]), point[knob])
    return plan_values


def plan_of(point: Mapping[str, Value]) -> dict[str, Value | tuple[str, ...]]:
    """The plan fields of a point.

    >>> plan_of({"tensor": 2, "passes": "fuse-norm+fp8-row", "gpu": "h100-sxm"})
    {'tensor': 2, 'passes': ('fuse-norm', 'fp8-row')}
    """
    return {
        name: tuple(pass_name for pass_name in str(value).split("+") if pass_name != "none")
        if name == "passes"
        else value
        for name, value in point.items()
        if name in _FIELDS
    }


_FIELDS = frozenset(field.name for field in msgspec.structs.fields(Plan))
