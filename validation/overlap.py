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
from presim.system.files import check_writable, write_file
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


def read(folder: Path, *, least_overlap: float = _LEAST_OVERLAP, least_ns: float = _LEAST_NS) -> list[Kernel]:
    """The kernels that overlapped for at least this share and took at least so long alone.

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
    chosen = [
        kernel
        for kernel in kernels
        if kernel.overlap >= least_overlap and kernel.overlap and kernel.alone_ns >= least_ns
    ]
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
    text += _MODELS_HEAD + "".join(_model_lines(read(options.folder, least_overlap=0.0, least_ns=0), beside))
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


_FOLDS = 5
_MODELS_HEAD = """
## Models to choose

All kernels that overlapped, in five parts. Fitted models (ratio, learned) are fitted to four parts and judged by the
fifth; the others have no constants from this table. A step's sum is the time of all kernels of a part. `--overlap-model
NAME` of `presim simulate` chooses a model.

| model | error of the sum, all parts | mean error of a part's sum | error of single kernels, weighted by time |
| --- | --- | --- | --- |
"""


def _model_lines(kernels: list[Kernel], beside: Demand) -> list[str]:
    """One row for each model of overlap: errors of sums and of single kernels, held out."""
    alone = np.array([kernel.alone_ns for kernel in kernels])
    overlapped = alone * np.array([kernel.overlap for kernel in kernels])
    added = np.array([kernel.slowdown for kernel in kernels])
    measured = alone + overlapped * added
    memory = np.array([_asked(kernel).memory for kernel in kernels])
    part = np.arange(len(kernels)) % _FOLDS

    def fitted(number: int) -> dict[str, overlap.OverlapModel]:
        """The models, fitted to all parts but one."""
        others = part != number
        mean = float(np.average(added[others], weights=overlapped[others]))
        base, slope = fit_learned(memory[others], added[others], overlapped[others])
        return {
            "none": overlap.Ratio(1.0),
            "analytic": overlap.ANALYTIC,
            "bandwidth": overlap.Bandwidth(),
            f"ratio, {1 + mean:.2f} in the last part": overlap.Ratio(1 + mean),
            "learned": overlap.Learned(base, slope, beside.memory),
        }

    predicted: dict[str, np.ndarray] = {}
    for number in range(_FOLDS):
        for model, key in zip(fitted(number).values(), fitted(_FOLDS - 1), strict=True):
            slowed = np.array([model.beside_communication(_asked(kernel), beside) for kernel in kernels])
            values = predicted.setdefault(key, np.zeros(len(kernels)))
            values[part == number] = (alone + overlapped * slowed)[part == number]
    base, slope = fit_learned(memory, added, overlapped)
    lines = [_model_line(name, values, measured, alone, part) for name, values in predicted.items()]
    return [*lines, f"\nFitted to all kernels, the learned model is {base:.3f} + {slope:.3f} x memory share.\n"]


def fit_learned(memory: np.ndarray, added: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Base and slope of `overlap.Learned`: least squares, weighted by the time that kernels overlapped."""
    slope, base = np.polyfit(memory, added, 1, w=np.sqrt(weight))
    return float(base), float(slope)


def _model_line(name: str, values: np.ndarray, measured: np.ndarray, alone: np.ndarray, part: np.ndarray) -> str:
    sums = [values[part == number].sum() / measured[part == number].sum() - 1 for number in range(_FOLDS)]
    single = np.average(np.abs(values / measured - 1), weights=alone)
    total = values.sum() / measured.sum() - 1
    return f"| {name} | {total:+.1%} | {np.mean(np.abs(sums)):.1%} | {single:.1%} |\n"


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
