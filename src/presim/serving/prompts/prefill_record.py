"""Planned prefills as one JSON document, as a terminal report, and as a page with the time of every rank."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from presim.report.blocks import blocks
from presim.report.drawings.drawing import Drawing
from presim.report.sections import page
from presim.serving.prompts.assign import Found
from presim.serving.prompts.prefill import NOT_MODELLED, Prefilled
from presim.serving.prompts.prompt_times import PARTS

SCHEMA = "presim-prefill/1"
SIMPLE = ("zigzag", "contiguous", "whole")
SPLIT_NAMES = {
    "dynamic": "each its own",
    "zigzag": "zigzag, all ranks",
    "contiguous": "contiguous, all",
    "whole": "none",
}
_SHOWN = 20  # prompts that the terminal report lists
_WIDTH, _LEFT, _ROW = 480, 130, 18
_COLOURS = ("--part-compute", "--part-exposed-communication", "--part-gradient")  # of parts


def document(batches: Sequence[Prefilled], *, refused: Sequence[str] = (), partial: bool = False) -> dict[str, Any]:
    """All results; times in ms. ``saved`` is 1 - dynamic / simple plan.

    ``refused``: why batches are not among them, as sentences. ``partial``: more batches were asked for.
    """
    first = batches[0]
    return {
        "schema": SCHEMA,
        "model": first.model.name,
        "gpu": first.cluster.gpu.id,
        "gpus": first.ranks * first.plan.tp,
        "ranks": first.ranks,
        "plan_of_a_rank": first.plan.text,
        "batches": [_batch(batch) for batch in batches],
        "saved": {policy: _spread([batch.gain(policy) for batch in batches]) for policy in SIMPLE},
        "saved_of_attention_blocks": {
            policy: _spread([1 - batch.blocks_ns["dynamic"] / batch.blocks_ns[policy] for batch in batches])
            for policy in SIMPLE
        },
        "not_modelled": list(NOT_MODELLED),
        "partial": partial,
        "refused": list(refused),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "median": float(np.median(values)), "largest": float(np.max(values))}


def _batch(prefilled: Prefilled) -> dict[str, Any]:
    return {
        "prompts": [
            {"tokens": length, "degree": way.degree, "ranks": [way.first, way.ranks[-1]], "layout": way.layout}
            for length, way in zip(prefilled.lengths, prefilled.dynamic.ways)
        ],
        "all_combinations_tried": prefilled.dynamic.exact,
        "policies": {name: _policy(prefilled, name, split_plan) for name, split_plan in prefilled.policies.items()},
    }


def _policy(prefilled: Prefilled, name: str, split_plan: Found) -> dict[str, Any]:
    doubt, ms = prefilled.doubts[name], split_plan.ns / 1e6
    slowest = int(split_plan.parts_ns.sum(axis=1).argmax())
    return {
        "ms": ms,
        "interval_80_ms": [ms * (1 - doubt.uncertainty), ms * (1 + doubt.uncertainty)],
        "attention_block_ms": prefilled.blocks_ns[name] / 1e6,
        "slowest_rank": slowest,
        "ms_of_ranks": [float(ns) / 1e6 for ns in split_plan.parts_ns.sum(axis=1)],
        "ms_of_the_slowest_by_part": {part: float(ns) / 1e6 for part, ns in zip(PARTS, split_plan.parts_ns[slowest])},
        "prices": doubt.origins,
    }


def encode(content: dict[str, Any]) -> bytes:
    """Encode a document as JSON with sorted keys."""
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def write(report: dict[str, Any]) -> None:
    """Print the report of a document."""
    Console(highlight=False, markup=False, emoji=False).print(screen(report))


def screen(report: dict[str, Any]) -> RenderableType:
    """The terminal report of a document."""
    body: list[RenderableType] = (
        [_policies(report), Text(), _prompts(report)] if len(report["batches"]) == 1 else [_over_batches(report)]
    )
    body += [Text(f"not planned: {reason}", style="red") for reason in report.get("refused", ())]
    missing = Text(f"Not modelled: {'; '.join(report['not_modelled'])}.", style="dim")
    return Group(Text(_title(report), style="bold"), Text(), *body, Text(), missing)


def _title(report: dict[str, Any]) -> str:
    gpus = f"{report['gpus']} x {report['gpu']}" if "gpus" in report else report["gpu"]
    return f"{report['model']} on {gpus}: {report['ranks']} ranks of {report['plan_of_a_rank']}"


def _policies(report: dict[str, Any]) -> Table:
    table = Table(box=None)
    heads = ("ms", "80 % interval", "linear", "attention", "gathers", "saved")
    table.add_column("split of prompts", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    for name, entry in _in_order(report["batches"][0]["policies"]).items():
        low, high = entry["interval_80_ms"]
        parts = [_number(entry["ms_of_the_slowest_by_part"][part]) for part in PARTS]
        saved = "" if name == "dynamic" else f"{report['saved'][name]['mean']:.1%}"
        table.add_row(SPLIT_NAMES[name], _number(entry["ms"]), f"{_number(low)}-{_number(high)}", *parts, saved)
    return table


def _in_order(policies: dict[str, Any]) -> dict[str, Any]:
    """The policies in the order of this module, since files sort their keys."""
    return {name: policies[name] for name in SPLIT_NAMES if name in policies}


def _number(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _prompts(report: dict[str, Any]) -> Table:
    table = Table(box=None)
    for head in ("prompt", "tokens", "ranks", "split"):
        table.add_column(head, justify="right")
    prompts = report["batches"][0]["prompts"]
    for number, prompt in enumerate(prompts[:_SHOWN]):
        first, last = prompt["ranks"]
        over = f"{first}-{last}" if prompt["degree"] > 1 else str(first)
        table.add_row(str(number), f"{prompt['tokens']:,}", over, prompt["layout"])
    if len(prompts) > _SHOWN:
        table.add_row("…", "", "", f"{len(prompts) - _SHOWN} more: --json")
    return table


def _over_batches(report: dict[str, Any]) -> Table:
    batches = report["batches"]
    count = sum(len(batch["prompts"]) for batch in batches)
    table = Table(box=None, title=f"{len(batches)} batches, {count:,} prompts")
    table.add_column("split of prompts", no_wrap=True)
    for head in ("mean ms", "saved: mean", "median", "most", "attention blocks"):
        table.add_column(head, justify="right")
    for name in _in_order(batches[0]["policies"]):
        mean = float(np.mean([batch["policies"][name]["ms"] for batch in batches]))
        saved = report["saved"].get(name)
        cells = [f"{saved[key]:.1%}" for key in ("mean", "median", "largest")] if saved else ["", "", ""]
        attention = f"{report['saved_of_attention_blocks'][name]['mean']:.1%}" if saved else ""
        table.add_row(SPLIT_NAMES[name], _number(mean), *cells, attention)
    return table


def render(batches: Sequence[Prefilled], content: dict[str, Any]) -> str:
    """A page: the report of a document, and the time of every rank (of the first batches)."""
    first = batches[0]
    drawings = [
        Drawing(f"Split: {SPLIT_NAMES[name]}", _bars(split_plan, _longest(batch)), f"batch {number}" if number else "")
        for number, batch in enumerate(batches[:4], 1 if len(batches) > 1 else 0)
        for name, split_plan in batch.policies.items()
    ]
    title = f"Prompts of {first.model.name} on {first.ranks * first.plan.tp} x {first.cluster.gpu.id}"
    return page(title, "", [*blocks(screen(content)), *drawings])


def _longest(prefilled: Prefilled) -> float:
    return max(split_plan.ns for split_plan in prefilled.policies.values())


def _bars(split_plan: Found, longest_ns: float) -> Markup:
    """A bar a rank, on one scale for all plans of a batch, its parts one after another."""
    ranks = len(split_plan.parts_ns)
    height = 28 + _ROW * ranks + 26
    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img">']
    for part_index, part in enumerate(PARTS):
        x = float(_LEFT + 115 * part_index)
        parts.append(f'<rect style="fill:var({_COLOURS[part_index]})" x="{x:g}" y="8" width="10" height="10"/>')
        parts.append(f'<text x="{x + 14:g}" y="17">{html.escape(part)}</text>')
    scale = (_WIDTH - _LEFT - 10) / longest_ns
    for rank, row in enumerate(split_plan.parts_ns):
        x, y = float(_LEFT), 28 + _ROW * rank
        label = f"rank {rank}: {row.sum() / 1e6:,.1f} ms"
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 12}" class="end">{label}</text>')
        for part_index, ns in enumerate(row):
            parts.append(
                f'<rect style="fill:var({_COLOURS[part_index]})" x="{x:.1f}" y="{y}" width="{ns * scale:.1f}" '
                f'height="{_ROW - 4}"/>'
            )
            x += float(ns) * scale
    base = 28 + _ROW * ranks
    parts.append(f'<path class="grid" d="M{_LEFT} 26V{base}H{_WIDTH - 10}"/>')
    parts.append(f'<text x="{_LEFT}" y="{height - 8}">0</text>')
    end = f"{longest_ns / 1e6:,.1f} ms"
    parts.append(f'<text x="{_WIDTH - 10}" y="{height - 8}" class="end">{end}</text></svg>')
    return Markup("".join(parts))  # of numbers and names of parts
