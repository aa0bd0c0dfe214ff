"""Compares the model of contention with Echo's public table of kernels measured during an all-reduce.

    python validation/overlap.py DIR [--out validation/results/overlap-echo.md]

DIR is a checkout of NetX-lab/Echo-slowdown: 619 kernels in fp32 on an A100, alone and during DDP's all-reduce of
gradients. The table does not describe the all-reduce; we assume a bucket of 25 MB on eight GPUs, as in the Echo paper.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
from pathlib import Path

import numpy as np

from presim import hardware
from presim.cli.script import sentences
from presim.cost import overlap
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.measured.importers import find
from presim.cost.overlap import Demand
from presim.cost.resource_demand import demand
from presim.errors import InputError
from presim.files import check_writable, write_file
from presim.trace.schema import Group
from presim.trace.signatures import Collective
from public_datasets import expected

_LEAST_OVERLAP = 0.3  # of a kernel's time, below which the measured slowdown is mostly noise
_LEAST_NS = 20_000


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One row of the table."""

    name: str
    alone_ns: float
    overlap: float  # share of its time
    slowdown: float  # over the time alone
    arithmetic: float  # share of its peak, by the counters
    memory: float  # likewise


def read(folder: Path) -> list[Kernel]:
    """The kernels that overlapped for long enough.

    Raises:
        InputError: the folder is no checkout of the table, or none did.
    """
    with expected(str(folder)), (folder / "merge/output/merged_features.csv").open(newline="") as file:
        kernels = [
            Kernel(
                name=row["kShortName"],
                alone_ns=float(row["ground_truth"]),
                overlap=float(row["overlap_ratio"]),
                slowdown=float(row["slowdown"]),
                arithmetic=float(row["Compute throughput"]) / 100,
                memory=float(row["DRAM throughput"]) / 100,
            )
            for row in csv.DictReader(file)
        ]
    chosen = [kernel for kernel in kernels if kernel.overlap >= _LEAST_OVERLAP and kernel.alone_ns >= _LEAST_NS]
    if not chosen:
        raise InputError(
            f"{folder}: of {len(kernels)} kernels none overlapped for {_LEAST_OVERLAP:.0%} of its time and took "
            f"{_LEAST_NS // 1000} us"
        )
    return chosen


def neighbour() -> Demand:
    """The concurrent all-reduce."""
    cluster = hardware.choose_cluster(gpu="a100-40gb-sxm", nodes=1)
    group = Group("world", tuple(range(8)), 8)
    reduce = Collective(kind="all_reduce", bytes=25 << 20, dtype="float32", group=0)
    return demand(reduce, Hierarchical().alone(reduce, group, cluster), (group,), cluster)


def main() -> None:
    """Read, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.out:
        check_writable(options.out)
    kernels = read(options.folder)
    beside = neighbour()
    classes = {
        "products (fp32)": [kernel for kernel in kernels if "gemm" in kernel.name],
        "attention (fp32)": [kernel for kernel in kernels if "fmha" in kernel.name],
        "memory above 70 % busy": [kernel for kernel in kernels if kernel.memory >= 0.7],
        "memory 40 to 70 % busy": [kernel for kernel in kernels if 0.4 <= kernel.memory < 0.7],
        "all": kernels,
    }
    commit = find.commit(options.folder) or "unknown"
    text = _HEAD.format(commit=commit[:7], channels=round(beside.channels * 108), memory=beside.memory)
    text += "".join(_line(name, chosen, beside) for name, chosen in classes.items() if chosen)
    sys.stdout.write(text)
    if options.out:
        write_file(options.out, text.encode())


_HEAD = """# Contention beside Echo's table

NetX-lab/Echo-slowdown {commit}, kernels of 20 us and more that overlapped for 30 % and more of their time. Taken for
their neighbour: an all-reduce of 25 MB on eight A100, {channels} channels, {memory:.0%} of memory bandwidth; the table
does not say what it was. Slowdown: time while both run, over time alone. Made by `validation/overlap.py`.

| kernels | count | measured median | measured p90 | measured, weighted by time | predicted, weighted |
| --- | --- | --- | --- | --- | --- |
"""


def _line(name: str, kernels: list[Kernel], beside: Demand) -> str:
    measured = np.array([1 + kernel.slowdown for kernel in kernels])
    weight = np.array([kernel.alone_ns * kernel.overlap for kernel in kernels])
    predicted = np.array([1 + overlap.added_time(_asked(kernel), beside) for kernel in kernels])
    figures = (np.median(measured), np.percentile(measured, 90), _mean(measured, weight), _mean(predicted, weight))
    return f"| {name} | {len(kernels)} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |\n"


def _mean(values: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average(values, weights=weight))


def _asked(kernel: Kernel) -> Demand:
    """The resource demand of the kernel, from its counters."""
    arithmetic = 1.0 if kernel.arithmetic > kernel.memory else 0.0
    return Demand(arithmetic=arithmetic, memory=min(kernel.memory / 0.9, 1.0))


if __name__ == "__main__":
    with sentences():
        main()
