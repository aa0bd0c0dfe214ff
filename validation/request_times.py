"""Compares each request of published vLLM runs with its simulation.

    python validation/request_times.py [--run NAME] [--prices DIR] [--csv FILE]

The runs are LLMServingSim's (casys-kaist/LLMServingSim, bench/examples/RTXPRO6000): 300 requests of ShareGPT at ten a
second on RTX PRO 6000 Server Edition, with at most 128 sequences and 2,048 tokens a step and rank. FILE replaces a
run's table in `papers`. Its times are in seconds. Arrivals were read from another clock than tokens; it is set so that
the shortest wait for the queue is 0.8 ms. DIR holds measured tables of this GPU.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.cli.script import sentences
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import build
from presim.serving.workloads.workload import Workload, make

PAPERS = Path(__file__).parent / "papers"
COLUMNS = ("input", "output", "arrival", "first", "last")
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Run:
    """A published run: requests.jsonl of a commit, and the KV blocks of one rank in meta.json."""

    model: str
    plan: ServingPlan
    source: str
    blocks: int
    blocks_from: str


_PLAN = ServingPlan(max_num_seqs=128, max_num_batched_tokens=2048)
RUNS = {
    "llama-3.1-8b": Run("llama3.1-8b", _PLAN, "vLLM 0.19, 5daddb21a", 35_913, "vLLM 0.28, 0acc21b27"),
    "qwen3-32b": Run(
        *("qwen3-32b", dataclasses.replace(_PLAN, tp=2), "vLLM 0.28, all-reduces by NCCL, 0d3de681a"),
        *(28_884, "the same run"),
    ),
    "qwen3-30b-a3b": Run(
        *("qwen3-30b-a3b", dataclasses.replace(_PLAN, dp=2, ep=True), "vLLM 0.28, 0d3de681a"),
        *(75_638 // 2, "vLLM 0.28, 0acc21b27"),
    ),
    "deepseek-v3.2-16l64e": Run(
        str(PAPERS / "llmservingsim-deepseek-v3.2-16l64e.json"),
        dataclasses.replace(_PLAN, weights="fp8-block", block_size=64),
        *("16 layers and 64 experts, vLLM 0.28, c1cccdc70", 49_181, "0acc21b27"),
    ),
}


def read(path: Path) -> dict[str, Floats]:
    """Columns of the run, from the first arrival on."""
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        found = {name: np.array([float(row[name]) for row in rows]) for name in COLUMNS}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is no table with the columns {', '.join(COLUMNS)}: {error}") from error
    if not rows:
        raise InputError(f"{path} has no requests")
    start = found["arrival"].min()
    return {**found, **{name: found[name] - start for name in ("arrival", "first", "last")}}


def workload_of(run: dict[str, Floats], name: str) -> Workload:
    """The run's requests at their times."""
    columns = ((run[name] * unit).astype(np.int64) for name, unit in (("arrival", 1e9), ("input", 1), ("output", 1)))
    return make(f"LLMServingSim, {name}", *columns)


def times(arrival: Floats, first: Floats, last: Floats, output: Floats) -> dict[str, Floats]:
    """Seconds of each request."""
    return {"TTFT": first - arrival, "TPOT": (last - first) / (output - 1), "E2E": last - arrival}


def compared(run: dict[str, Floats], served: Served) -> list[str]:
    """A table: means and 99th percentiles, and the error of single requests."""
    sent, first, last = (column / 1e9 for column in (served.sent, served.first, served.last))
    ours = times(sent, first, last, run["output"])
    theirs = times(run["arrival"], run["first"], run["last"], run["output"])
    lines = ["| | measured | presim | error | median error of a request |", "|---|---:|---:|---:|---:|"]
    for name, measured in theirs.items():
        said = ours[name]
        single = np.median(np.abs(said / measured - 1))
        for word, of in (("mean", np.mean), ("median", np.median), ("p99", lambda one: np.percentile(one, 99))):
            here, there = float(of(said)), float(of(measured))
            last_cell = f"{single:.1%}" if word == "mean" else ""
            lines.append(f"| {name}, {word} | {there:,.4g} s | {here:,.4g} s | {here / there - 1:+.1%} | {last_cell} |")
    return lines


def report(name: str, table: Path, prices: tuple[Path, ...]) -> list[str]:
    """KV blocks and times of a run."""
    run, measured = RUNS[name], read(table)
    cluster = choose_cluster(gpu="rtx-pro-6000", world_size=run.plan.gpus)
    engine = build(find(run.model), run.plan, cluster, prices=prices)
    served = simulate(workload_of(measured, name), Deployment(engine).fleet())
    blocks = engine.memory.blocks
    of_vllm = f"vLLM's {run.blocks:,} ({run.blocks_from}): {blocks / run.blocks - 1:+.1%}"
    head = [f"## {name}, {run.plan.text} ({run.source})", "", f"KV blocks of a rank: {blocks:,}, {of_vllm}", ""]
    return [*head, *compared(measured, served), ""]


def main() -> None:
    """Print the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", choices=RUNS, help="default: all")
    parser.add_argument("--csv", type=Path, help="table of the run; it needs --run")
    parser.add_argument("--prices", type=Path, action="append", default=[], help="folder with tables of the GPU")
    options = parser.parse_args()
    if options.csv and not options.run:
        raise InputError("--csv replaces the table of one run; name it with --run")
    for name in [options.run] if options.run else RUNS:
        table = options.csv or PAPERS / f"llmservingsim-{name}.csv"
        print("\n".join(report(name, table, tuple(options.prices))), flush=True)


if __name__ == "__main__":
    with sentences():
        main()
