"""Fits the seconds of a transfer of weights parameter by parameter, and judges the fit by leaving whole sources out.

    python validation/weight_syncs.py TABLE

TABLE has one published run a row. Transfers of verl's own trainers count: those of veomni take five times as long.
Writes `results/weight-syncs.md`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from presim.cli.script import sentences
from presim.errors import InputError
from presim.post_training.weights import software_seconds
from presim.serving.model_lookup import find
from presim.studies.validation.case_tables import read_table
from presim.system.files import write_file

RESULT = Path(__file__).parent / "results" / "weight-syncs.md"
_BYTES = 2  # of a parameter as it is sent
_SOURCES = {
    "verl-wsync-0": ("verl's delta_weight_sync.md", "qwen2.5-7b"),
    "verl-wsync-3": ("verl's delta_weight_sync.md", "qwen2.5-72b"),
    "verl-ckpteng-1": ("verl's fully_async.md", "qwen3-30b-a3b"),
    "verl-ckpteng-2": ("verl's fully_async.md", "qwen3-235b-a22b"),
    "rlinf-verl-7b-64": ("RLinf's comparison", "qwen2.5-7b"),
}
Law: TypeAlias = Callable[[float], float]  # GB to seconds


@dataclasses.dataclass(frozen=True)
class SyncTime:
    """A published transfer."""

    name: str
    source: str
    size_GB: float
    seconds: float


def line(transfers: Sequence[SyncTime]) -> Law:
    """A start and a rate, by least squares of relative errors."""
    weights = [1 / transfer.seconds**2 for transfer in transfers]
    sizes, seconds = [transfer.size_GB for transfer in transfers], [transfer.seconds for transfer in transfers]
    start_s, rate = _regression(sizes, seconds, weights)
    return lambda size_GB: start_s + rate * size_GB


def power(transfers: Sequence[SyncTime]) -> Law:
    """A power of the size, by least squares of logarithms."""
    factor_s, exponent = power_constants(transfers)
    return lambda size_GB: float(factor_s * size_GB**exponent)


def power_constants(transfers: Sequence[SyncTime]) -> tuple[float, float]:
    """Seconds of one GB, and the exponent."""
    sizes = [math.log(transfer.size_GB) for transfer in transfers]
    seconds = [math.log(transfer.seconds) for transfer in transfers]
    start, exponent = _regression(sizes, seconds, [1.0] * len(sizes))
    return math.exp(start), exponent


def _regression(sizes: Sequence[float], seconds: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope."""
    total = sum(weights)
    size = sum(weight * value for weight, value in zip(weights, sizes)) / total
    second = sum(weight * value for weight, value in zip(weights, seconds)) / total
    spread = sum(weight * (value - size) ** 2 for weight, value in zip(weights, sizes))
    slope = sum(weight * (x - size) * (y - second) for weight, x, y in zip(weights, sizes, seconds)) / spread
    return second - slope * size, slope


def left_out(transfers: Sequence[SyncTime], fit: Callable[[Sequence[SyncTime]], Law]) -> dict[str, float]:
    """Relative error of each transfer by the law of the other sources."""
    errors = {}
    for transfer in transfers:
        law = fit([other for other in transfers if other.source != transfer.source])
        errors[transfer.name] = law(transfer.size_GB) / transfer.seconds - 1
    return errors


def _transfers(table: Sequence[Mapping[str, str]]) -> list[SyncTime]:
    rows = {row["id"]: row for row in table}
    if missing := sorted(set(_SOURCES) - set(rows)):
        raise InputError(f"the table has no row {missing[0]!r}; name another table")
    transfers = []
    for name, (source, model) in _SOURCES.items():
        seconds = statistics.mean(float(part) for part in rows[name]["weight_sync_time_s"].split("-"))
        transfers.append(SyncTime(name, source, find(model).parameters * _BYTES / 1e9, seconds))
    return transfers


def page(transfers: Sequence[SyncTime]) -> str:
    """The results as Markdown."""
    factor_s, exponent = power_constants(transfers)
    errors = {name: left_out(transfers, fit) for name, fit in (("line", line), ("power", power))}
    medians = {name: statistics.median(map(abs, values.values())) for name, values in errors.items()}
    lines = [
        "# Transfers of weights parameter by parameter",
        "",
        f"{datetime.date.today()}, by `python validation/weight_syncs.py TABLE`. Five published transfers of verl",
        f"from three sources give {factor_s:.3g} s x (size in GB)^{exponent:.3g}, by least squares of logarithms. An",
        "error is that of the same law without the transfer's source. A line of a start and a rate was tried, too.",
        "",
        "| transfer | source | size | measured | `presim rl` | error without the source | of a line |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {transfer.name} | {transfer.source} | {transfer.size_GB:.1f} GB | {transfer.seconds:.4g} s | "
        f"{software_seconds(transfer.size_GB * 1e9):.4g} s | {errors['power'][transfer.name]:+.0%} | "
        f"{errors['line'][transfer.name]:+.0%} |"
        for transfer in transfers
    ]
    return "\n".join(
        [*lines, "", f"Median absolute error: {medians['power']:.0%}; of a line {medians['line']:.0%}.", ""]
    )


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    arguments = parser.parse_args()
    table = read_table(Path(arguments.table), ("id", "weight_sync_time_s"), "a published transfer has")
    transfers = _transfers(table)
    print("law:", power_constants(transfers))
    write_file(RESULT, page(transfers).encode())


if __name__ == "__main__":
    with sentences():
        main()
