"""Layers of each chunk where a user's fields of Megatron give the first and the last stage fewer or more.

Source of the division: `get_num_layers_to_build` of Megatron-core 0.16.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from presim.composition.plan import Plan

_FIRST, _LAST = (f"model.num_layers_in_{end}_pipeline_stage" for end in ("first", "last"))
_EMBEDDING, _LOSS = (f"model.account_for_{end}_in_pipeline_split" for end in ("embedding", "loss"))
FIELDS = (_FIRST, _LAST, _EMBEDDING, _LOSS)


def uneven_fields(arguments: Sequence[str]) -> dict[str, str]:
    """The fields among a run's arguments that make stages uneven, with their values."""
    parts = (argument.partition("=") for argument in arguments)
    return {field: value for field, _, value in parts if field in FIELDS}


def uneven_layers(layers: int, plan: Plan, fields: Mapping[str, str]) -> list[range] | None:
    """The layers of each chunk, in their order; None: Megatron would refuse them, or a value is none of its kind.

    ``fields``: see `uneven_fields`.
    """
    counts = _counted(layers, plan, fields) if {_EMBEDDING, _LOSS} & {*fields} else _given_at_ends(layers, plan, fields)
    if counts is None or sum(counts) != layers or min(counts) < 0:
        return None
    ends = [sum(counts[: number + 1]) for number in range(len(counts))]
    return [range(end - count, end) for end, count in zip(ends, counts)]


def _counted(layers: int, plan: Plan, fields: Mapping[str, str]) -> list[int] | None:
    """Layers of each chunk, where the embedding or the loss counts as one."""
    counted = [fields.get(name, "false").lower() for name in (_EMBEDDING, _LOSS)]
    if {_FIRST, _LAST} & {*fields} or not {*counted} <= {"true", "false"}:
        return None
    embedding, loss = (int(word == "true") for word in counted)
    per_chunk, rest = divmod(layers + embedding + loss, plan.pipeline * plan.virtual)
    counts = [per_chunk] * (plan.pipeline * plan.virtual)
    counts[0] -= embedding
    counts[-1] -= loss
    return None if rest else counts


def _given_at_ends(layers: int, plan: Plan, fields: Mapping[str, str]) -> list[int] | None:
    """Layers of each chunk, where those of the first or the last stage are given."""
    given = [fields[name] for name in (_FIRST, _LAST) if name in fields]
    if not all(map(str.isdecimal, given)) or plan.pipeline <= len(given):
        return None
    between, rest = divmod(layers - sum(map(int, given)), plan.pipeline - len(given))
    of_stages = [int(fields.get(_FIRST, between)), *[between] * (plan.pipeline - 2), int(fields.get(_LAST, between))]
    if rest or any(count % plan.virtual for count in of_stages):
        return None
    return [count // plan.virtual for count in of_stages] * plan.virtual
