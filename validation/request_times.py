"""Compares each request of a published vLLM run with its simulation.

    python validation/request_times.py [--prices DIR] [--csv FILE]

FILE has a run of LLMServingSim (casys-kaist/LLMServingSim 5daddb21a, bench/examples/RTXPRO6000/Llama-3.1-8B/vllm/
requests.jsonl): 300 requests of ShareGPT at ten a second, Llama-3.1-8B in vLLM on one RTX PRO 6000 Server Edition with
128 sequences and 2,048 tokens a step. Times are in seconds. Arrivals were read from another clock than tokens; it is
set so that the shortest wait for the queue is 0.8 ms. DIR holds measured tables of this GPU.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.cli.script import sentences
from presim.errors import InputError
from presim.hardware.choose import choose_cluster
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate import Served, simulate
from presim.serving.model import find
from presim.serving.plan import Plan
from presim.serving.steps.times import build
from presim.serving.workloads.workload import Workload, make

RUN = Path(__file__).parent / "papers" / "llmservingsim-llama-3.1-8b.csv"
COLUMNS = ("input", "output", "arrival", "first", "last")
BLOCKS = 35_913  # of the KV cache, in meta.json of a run with the same settings (commit 0acc21b27)
Floats = NDArray[np.float64]


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


def workload_of(run: dict[str, Floats]) -> Workload:
    """The run's requests at their times."""
    columns = ((run[name] * unit).astype(np.int64) for name, unit in (("arrival", 1e9), ("input", 1), ("output", 1)))
    return make("LLMServingSim, Llama-3.1-8B", *columns)


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


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=RUN)
    parser.add_argument("--prices", type=Path, action="append", default=[], help="folder with tables of the GPU")
    options = parser.parse_args()
    run = read(options.csv)
    plan = Plan(max_num_seqs=128, max_num_batched_tokens=2048)
    cluster = choose_cluster(gpu="rtx-pro-6000")
    engine = build(find("llama3.1-8b"), plan, cluster, prices=tuple(options.prices))
    served = simulate(workload_of(run), Deployment(engine).fleet())
    blocks = engine.memory.blocks
    print(
        f"KV blocks: {blocks:,}, vLLM's {BLOCKS:,} ({blocks / BLOCKS - 1:+.1%})", "", *compared(run, served), sep="\n"
    )


if __name__ == "__main__":
    with sentences():
        main()
