"""Measure the table by which host time is freed of what else a machine did, from captures of many programs.

    python validation/known_stretches.py FOLDER... [--out src/presim/trace/known_stretches.toml]

Each FOLDER holds kept captures (`presim validate --captures`). The logarithm of a stretch's median time in a capture
is taken as that of the stretch plus that of the capture's pace; medians of the one and the other, in turn, until they
stay. The median pace of the captures that had a machine to themselves is 1. A stretch is known where enough captures
have it and agree about it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.trace import store
from presim.trace.schema import Kind, Trace
from presim.trace.speedometer import within

_TIMES = 8  # a stretch in a capture, for its median to be looked at
_CAPTURES = 8  # with a stretch, for it to be known
_APART = 0.2  # median deviation of its logarithms, at most
_ONE_CALL_NS = 4000  # launches of one operator that lie further apart are of two calls, with Python between them
_ALONE = 0.05  # share of the machine that others used, at most
_ROUNDS = 10

Floats = NDArray[np.float64]


def captures(folders: list[Path], most: int) -> Iterator[Trace]:
    """At most so many of each recipe, the first by name of their folders."""
    taken: Counter[str] = Counter()
    for job in sorted(
        (path for folder in folders for path in folder.glob("*/job.json")), key=lambda path: path.parent.name
    ):
        script = Path(json.loads(job.read_text())["job"]["manifest"]["script"].split(" ")[0]).name
        if taken[script] < most:
            trace = next(iter(store.load(job.parent).traces.values()))
            if trace.manifest.reference_host and len(trace.steps()) > 1:
                taken[script] += 1
                yield trace


def medians(trace: Trace) -> dict[str, float]:
    """The median time of each stretch that is there often enough, in the steps after the first, ns."""
    ends, names, which, times = within(trace)
    steady = ends >= trace.steps()[0].stop
    counts = np.bincount(which[steady], minlength=len(names))
    return {
        name: float(np.median(times[steady & (which == place)]))
        for place, name in enumerate(names)
        if counts[place] >= _TIMES
    }


def decompose(logs: list[dict[str, float]], alone: list[bool]) -> tuple[dict[str, list[float]], list[float]]:
    """The logarithm of each stretch's time in each capture, at pace 1; and that of each capture's pace."""
    paces = [0.0] * len(logs)
    for _ in range(_ROUNDS):
        levelled: dict[str, list[float]] = defaultdict(list)
        for mine, pace in zip(logs, paces):
            for name, value in mine.items():
                levelled[name].append(value - pace)
        stretches = {name: float(np.median(values)) for name, values in levelled.items() if len(values) >= _CAPTURES}
        paces = [
            float(np.median([value - stretches[name] for name, value in mine.items() if name in stretches] or [0.0]))
            for mine in logs
        ]
        middle = float(np.median([pace for pace, quiet in zip(paces, alone) if quiet]))
        paces = [pace - middle for pace in paces]
    return levelled, paces


def main() -> None:
    """Read, decompose, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--most", type=int, default=60, help="captures of one recipe (60)")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    logs, alone, versions = [], [], Counter[str]()
    for trace in captures(options.folders, options.most):
        logs.append({name: float(np.log(ns)) for name, ns in medians(trace).items()})
        alone.append(trace.manifest.neighbours < _ALONE)
        versions[trace.manifest.versions.get("torch", "?")] += 1
    levelled, paces = decompose(logs, alone)
    rows = []
    for name, values in sorted(levelled.items()):
        middle = float(np.median(values))
        is_one_call = name.startswith(Kind.ALLOC.name) or np.exp(middle) < _ONE_CALL_NS
        agree = np.median(np.abs(np.array(values) - middle)) <= _APART
        if len(values) >= _CAPTURES and is_one_call and agree:
            rows.append(f'"{name}" = {round(np.exp(middle))}\n')
    head = (
        "# Time of stretches of host work that end with a launch, within one of PyTorch's operators, on a machine\n"
        "# that does nothing else, ns: the entry before, the operator, the phase. By validation/known_stretches.py\n"
        f"# from {len(logs)} captures, {sum(alone)} of them alone on a machine; PyTorch {', '.join(sorted(versions))}\n"
        "[ns]\n"
    )
    text = head + "".join(rows)
    (options.out.write_text if options.out else sys.stdout.write)(text)
    sys.stderr.write(
        f"{len(logs)} captures; pace {np.percentile(np.exp(paces), [10, 50, 90])}; {len(rows)} stretches\n"
    )


if __name__ == "__main__":
    main()
