"""Measures the disagreement of sources on the same products on the same GPU: a lower bound of the error of any price.

    python validation/disagreement.py AICONFIGURATOR

The arguments are datasets, as for `presim fit`. Only held-out shapes that at least two sources timed count. The best
price of a shape is the one of its times with the smallest mean relative error against all of them; that error remains.
A row is an outlier if three sources timed the shape and it differs by more than 15 % from their median. Takes half a
minute.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from presim.cli.script import sentences
from presim.cost.fitting.fit_prices import gather
from presim.cost.fitting.fit_samples import by_class
from presim.cost.fitting.split import part_of
from presim.cost.measured.measured_rows import Measurement
from presim.errors import InputError

CLASSES = ("gemm-half", "gemm-fp8")
_FAR = 0.15


def shapes(rows: Sequence[Measurement]) -> list[list[Measurement]]:
    """The held-out shapes that several sources timed, with their rows. Only a source's first row of a shape counts."""
    found: dict[object, dict[str, Measurement]] = collections.defaultdict(dict)
    for row in rows:
        if part_of(row.signature) == "test":
            found[row.signature].setdefault(row.source, row)
    return [list(group.values()) for group in found.values() if len(group) > 1]


def lines(kind: str, gpu: str, rows: Sequence[Measurement]) -> Iterator[str]:
    """One row for all sources together, and one per source."""
    off: dict[str, list[float]] = collections.defaultdict(list)
    far: dict[str, list[bool]] = collections.defaultdict(list)
    for group in shapes(rows):
        times = np.array([row.duration_ns for row in group], float)
        errors = min((np.abs(price / times - 1) for price in times), key=np.mean)
        distances = np.abs(times / np.median(times) - 1)
        for row, error, distance in zip(group, errors, distances):
            for name in ("all", row.source):
                off[name].append(float(error))
                if len(group) > 2:
                    far[name].append(bool(distance > _FAR))
    for name in sorted(off, key=lambda name: (name != "all", name)):
        share = f"{np.mean(far[name]):.1%}" if far[name] else ""
        yield f"| {kind} | {gpu} | {name} | {len(off[name])} | {np.mean(off[name]):.1%} | {share} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA")
    rows, _ = gather(parser.parse_args().data, sys.maxsize, lambda text: print(text, file=sys.stderr))
    table = [
        line for (kind, gpu), found in by_class(rows).items() if kind in CLASSES for line in lines(kind, gpu, found)
    ]
    if not table:
        raise InputError("no product was timed by two sources; give a checkout of aiconfigurator")
    print("| class | GPU | source | rows | error of the best price | far off, of three |\n|---|---|---|---:|---:|---:|")
    print(*table, sep="\n")


if __name__ == "__main__":
    with sentences():
        main()
