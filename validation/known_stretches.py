"""Measures the table of known host work, which removes the effect of other processes, from captures of many programs.

    python validation/known_stretches.py FOLDER... [--out src/presim/trace/known_stretches.parquet]

Each FOLDER holds captures of `presim validate --captures`. The model is additive in logarithms: the median time of a
stretch in a capture is the stretch's time plus the capture's slowdown. Both are estimated by alternating weighted
medians until they converge; stretches have weights by their time. The median slowdown of captures on an idle machine is
defined as 1. A stretch is included if enough captures have it and agree.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kept_runs import jobs
from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import check_writable
from presim.trace import job_store
from presim.trace.capture_speed import stretches
from presim.trace.schema import Trace

_TIMES = 4  # a stretch in a capture, for its median to be looked at
_CAPTURES = 3  # with a stretch, for it to be known
_APART = 0.4  # median deviation of its logarithms, at most
_LEAST_NS = 250  # less is not known well beside what observing takes
_SHARE = 1e-4  # of some capture's host time, for a stretch to be worth a line
_ALONE = 0.05  # share of the machine that others used, at most
_ROUNDS = 10

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Samples:
    """Median times of stretches in captures. For each sample [n]: stretch, capture, ns, and count."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.alone: list[bool] = []
        self.versions: Counter[str] = Counter()
        self._parts: list[list[tuple[int, float, int]]] = []

    def add(self, trace: Trace) -> None:
        """Add the stretches of one capture, from the steps after the first."""
        ends, names, which, times = stretches(trace)
        steady = ends >= trace.steps()[0].stop
        which, times = which[steady], times[steady]
        counts = np.bincount(which, minlength=len(names))
        first = np.cumsum(counts) - counts
        middles = times[np.lexsort((times, which))][np.minimum(first + counts // 2, len(times) - 1)]
        merged: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for name, middle, count in zip(names, middles.tolist(), counts.tolist()):
            if count >= _TIMES and middle > 0:
                merged[name].append((middle, count))
        part = []
        for name, found in merged.items():
            total = sum(count for _, count in found)
            part.append(
                (self.names.setdefault(name, len(self.names)), sum(ns * count for ns, count in found) / total, total)
            )
        self._parts.append(part)
        self.alone.append(trace.manifest.neighbours < _ALONE)
        self.versions[trace.manifest.versions.get("torch", "?")] += 1

    def columns(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Stretch [n], capture [n], log of its median time in ns, and its share of that capture's time [n]."""
        rows = np.array([(name, place, ns, n) for place, part in enumerate(self._parts) for name, ns, n in part])
        stretch, capture = rows[:, :2].astype(np.int64).T
        ns, count = rows[:, 2:].T
        return stretch, capture, np.log(ns), ns * count / np.bincount(capture, ns * count)[capture]


def captures(folders: list[Path], most: int) -> Iterator[Trace]:
    """At most a fixed number of captures per recipe, by name of their folders."""
    taken: Counter[str] = Counter()
    for job in jobs(folders):
        script = Path(job_store.load(job, ranks=()).manifest.script.split(" ")[0]).name
        if taken[script] < most:
            trace = next(iter(job_store.load(job).traces.values()))
            if trace.manifest.reference_host and len(trace.steps()) > 1:
                taken[script] += 1
                yield trace


def weighted_medians(group: Ints, values: Floats, weights: Floats, size: int) -> Floats:
    """For each group [size] the weighted median of its values; NaN for empty groups."""
    order = np.lexsort((values, group))
    group, values, weights = group[order], values[order], weights[order]
    reached = np.cumsum(weights)
    total = np.bincount(group, weights, size)
    before = np.cumsum(total) - total
    places = np.searchsorted(reached, before + total / 2 * (1 - 1e-9))
    counts = np.bincount(group, minlength=size)
    return np.where(counts > 0, values[np.minimum(places, len(values) - 1)], np.nan)


def decompose(samples: Samples) -> tuple[Floats, Floats, Ints, Floats]:
    """For each stretch: log of its ns at slowdown 1, spread over captures, count; and the captures' slowdowns."""
    stretch, capture, log_ns, share = samples.columns()
    size, paces = len(samples.names), np.zeros(len(samples.alone))
    counts = np.bincount(stretch, minlength=size)
    shared = counts[stretch] >= _CAPTURES
    equal = np.ones(len(stretch))
    for _ in range(_ROUNDS):
        middles = weighted_medians(stretch, log_ns - paces[capture], equal, size)
        apart = (log_ns - middles[stretch])[shared]
        paces = np.nan_to_num(weighted_medians(capture[shared], apart, share[shared], len(paces)))
        paces -= np.median(paces[samples.alone])
    middles = weighted_medians(stretch, log_ns - paces[capture], equal, size)
    spread = weighted_medians(stretch, np.abs(log_ns - paces[capture] - middles[stretch]), equal, size)
    return middles, spread, counts, paces


def known(samples: Samples) -> tuple[list[tuple[str, int]], Floats]:
    """Stretches and their ns at slowdown 1, by name; and the slowdowns of the captures.

    Raises:
        InputError: no capture has slowdown 1, or too few have the same stretches.
    """
    if not any(samples.alone):
        raise InputError(f"of {len(samples.alone)} captures none had its machine to itself, which is what pace 1 is")
    if not samples.names:
        raise InputError(f"no stretch comes {_TIMES} times in any of {len(samples.alone)} captures")
    middles, spread, counts, paces = decompose(samples)
    stretch, _, _, share = samples.columns()
    matters = np.zeros(len(middles))
    np.maximum.at(matters, stretch, share)
    kept = (counts >= _CAPTURES) & (spread <= _APART) & (middles >= np.log(_LEAST_NS)) & (matters >= _SHARE)
    rows = sorted((name, round(float(np.exp(middles[at])))) for name, at in samples.names.items() if kept[at])
    if not rows:
        raise InputError(f"{len(paces)} captures agree on no stretch; {_CAPTURES} at least have to have it")
    return rows, paces


def main() -> None:
    """Read, decompose, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--most", type=int, default=60, help="captures of one recipe (60)")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    check_writable(options.out)
    samples = Samples()
    for trace in captures(options.folders, options.most):
        samples.add(trace)
    rows, paces = known(samples)
    origin = (
        f"{len(paces)} captures, {sum(samples.alone)} alone on a machine; PyTorch {', '.join(sorted(samples.versions))}"
    )
    table = pa.table({"stretch": [name for name, _ in rows], "ns": pa.array([ns for _, ns in rows], pa.int32())})
    pq.write_table(table.replace_schema_metadata({"origin": origin}), options.out, compression="zstd")
    sys.stderr.write(f"{origin}; pace {np.percentile(np.exp(paces), [10, 50, 90]).round(2)}; {len(rows)} stretches\n")


if __name__ == "__main__":
    with sentences():
        main()
