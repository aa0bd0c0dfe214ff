"""Layers of each chunk where a user's fields of Megatron divide them: fewer or more at the ends, or a layout of all.

Sources: `get_num_layers_to_build` and `PipelineParallelLayerLayout` of Megatron-core 0.16.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from presim.composition.frameworks.programs.stage_layout import LAST
from presim.composition.plan import Plan

_FIRST, _LAST = (f"model.num_layers_in_{end}_pipeline_stage" for end in ("first", "last"))
_EMBEDDING, _LOSS = (f"model.account_for_{end}_in_pipeline_split" for end in ("embedding", "loss"))
_LAYOUT = "model.pipeline_model_parallel_layout"
FIELDS = (_FIRST, _LAST, _EMBEDDING, _LOSS, _LAYOUT)
_REPEATED = (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)")  # parts of a layout in parentheses, then single letters


class Division(NamedTuple):
    """Layers by chunk, in the order of chunks, and the chunk that predicts further tokens."""

    chunks: list[range]
    predicting: int = LAST


def uneven_fields(arguments: Sequence[str]) -> dict[str, str]:
    """The fields among a run's arguments that make stages uneven, with their values."""
    parts = (argument.partition("=") for argument in arguments)
    return {field: value for field, _, value in parts if field in FIELDS}


def uneven_layers(layers: int, plan: Plan, fields: Mapping[str, str], predicted: int = 0) -> Division | None:
    """The layers of each chunk, in their order; None: Megatron would refuse them, or a value is none of its kind.

    ``fields``: see `uneven_fields`. ``predicted``: layers behind them that predict further tokens; only a layout says
    where these are.
    """
    if _LAYOUT in fields:
        return _in_layout(fields[_LAYOUT], layers, plan, predicted) if len(fields) == 1 else None
    if predicted:
        return None
    counts = _counted(layers, plan, fields) if {_EMBEDDING, _LOSS} & {*fields} else _given_at_ends(layers, plan, fields)
    return None if counts is None else _division(counts, layers)


def _division(counts: Sequence[int], layers: int, predicting: int = LAST) -> Division | None:
    """The layers by their counts in each chunk; None: these are not all layers."""
    if sum(counts) != layers or min(counts) < 0:
        return None
    ends = [sum(counts[: number + 1]) for number in range(len(counts))]
    return Division([range(end - count, end) for end, count in zip(ends, counts)], predicting)


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


def _in_layout(layout: str, layers: int, plan: Plan, predicted: int) -> Division | None:
    """The layers in a layout as ``Et*3|(tt|)*29,m|L``, which has a letter for each; None: it is another list.

    What predicts further tokens is in one chunk behind all other layers.
    """
    text = layout.strip("\"'").replace(",", "")  # quoted, as its letters need it among fields
    for repeated in _REPEATED:
        text = re.sub(repeated, lambda part: part[1] * int(part[2]), text)
    chunks = text.split("|")
    if len(chunks) != plan.pipeline * plan.virtual or not re.fullmatch(rf"E[t|]*m{{{predicted}}}\|*L", text):
        return None
    predicting = max((number for number, chunk in enumerate(chunks[:LAST]) if "m" in chunk), default=LAST)
    return _division([chunk.count("t") for chunk in chunks], layers, predicting)
