"""Hold the model of contention against Echo's public table of kernels measured beside an all-reduce.

    python validation/overlap.py DIR [--out validation/results/overlap-echo.md]

DIR is a checkout of NetX-lab/Echo-slowdown: 619 kernels in fp32 on an A100, alone and while gradients of DDP are
reduced. It does not say what the all-reduce was; a bucket of 25 MB on eight GPUs is taken, as in the Echo paper.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

from presim import hardware
from presim.cost import overlap
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.demand import demand
from presim.cost.overlap import Demand
from presim.trace.schema import Group
from presim.trace.signatures import Collective

_LEAST_OVERLAP = 0.3  # of a kernel's time, below which the measured slowdown is mostly noise
_LEAST_NS = 20_000
_COMMIT = "COMMIT"


def neighbour() -> Demand:
    """The all-reduce beside them."""
    cluster = hardware.choose_cluster(gpu="a100-40gb-sxm", nodes=1)
    group = Group("world", tuple(range(8)), 8)
    reduce = Collective(kind="all_reduce", bytes=25 << 20, dtype="float32", group=0)
    return demand(reduce, Hierarchical().price(reduce, group, cluster), (group,), cluster)


def main() -> None:
    """Read, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with (options.folder / "merge/output/merged_features.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if float(row["overlap_ratio"]) >= _LEAST_OVERLAP]
    rows = [row for row in rows if float(row["ground_truth"]) >= _LEAST_NS]
    beside = neighbour()
    classes = {
        "products (fp32)": [row for row in rows if "gemm" in row["kShortName"]],
        "attention (fp32)": [row for row in rows if "fmha" in row["kShortName"]],
        "memory above 70 % busy": [row for row in rows if float(row["DRAM throughput"]) >= 70],
        "memory 40 to 70 % busy": [row for row in rows if 40 <= float(row["DRAM throughput"]) < 70],
        "all": rows,
    }
    commit = (options.folder / _COMMIT).read_text().split()[0] if (options.folder / _COMMIT).exists() else "unknown"
    text = _HEAD.format(commit=commit[:7], channels=round(beside.channels * 108), memory=beside.memory)
    text += "".join(_line(name, chosen, beside) for name, chosen in classes.items())
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


_HEAD = """# Contention beside Echo's table

NetX-lab/Echo-slowdown {commit}, kernels of 20 us and more that overlapped for 30 % and more of their time. Taken for
their neighbour: an all-reduce of 25 MB on eight A100, {channels} channels, {memory:.0%} of memory bandwidth; the table
does not say what it was. Slowdown: time while both run, over time alone. Made by `validation/overlap.py`.

| kernels | count | measured median | measured p90 | measured, weighted by time | predicted, weighted |
| --- | --- | --- | --- | --- | --- |
"""


def _line(name: str, rows: list[dict[str, str]], beside: Demand) -> str:
    measured = np.array([1 + float(row["slowdown"]) for row in rows])
    weight = np.array([float(row["ground_truth"]) * float(row["overlap_ratio"]) for row in rows])
    predicted = np.array([1 + overlap.added(_kernel(row), beside) for row in rows])
    figures = (np.median(measured), np.percentile(measured, 90), _mean(measured, weight), _mean(predicted, weight))
    return f"| {name} | {len(rows)} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |\n"


def _mean(values: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(values, weights=weight))


def _kernel(row: dict[str, str]) -> Demand:
    """What the kernel asks for, from its counters."""
    arithmetic, memory = float(row["Compute throughput"]) / 100, float(row["DRAM throughput"]) / 100
    return Demand(arithmetic=1.0 if arithmetic > memory else 0.0, memory=min(memory / 0.9, 1.0))


if __name__ == "__main__":
    main()
