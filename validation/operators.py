"""Compares analytic prices with public tables of measurements, by kind of work, GPU and source.

    python validation/operators.py --aiconfigurator DIR --neusight DIR --vidur DIR --frontier DIR --simumax DIR \
        --vtrain DIR --echo DIR --nccl-csv FILE --out validation/results/operators-analytic.md

All datasets are optional. DIR is a checkout of the dataset's repository. Its commit is read from a file COMMIT beside
it or from git. Takes about two minutes on one core.
"""

from __future__ import annotations

import argparse
import collections
import datetime
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

import operator_tables as tables
import public_datasets
from presim import hardware
from presim.cli.script import sentences
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.collectives.hierarchical import Hierarchical
from presim.system.files import check_writable, write_file
from presim.trace.schema import Group
from presim.trace.signatures import Collective

Key = tuple[str, str, str]


class Line:
    """The data of one line of the report."""

    def __init__(self) -> None:
        self.predicted: list[float] = []
        self.measured: list[float] = []
        self.widths: list[float] = []

    def errors(self) -> np.ndarray:
        """Relative errors, signed: positive where the price is too high."""
        return np.array(self.predicted) / np.array(self.measured) - 1


def compare(cases: Iterable[tables.Case]) -> dict[Key, Line]:
    """Price all cases, GPU by GPU in batches."""
    lines: dict[Key, Line] = collections.defaultdict(Line)
    by_gpu: dict[str, list[tables.Case]] = collections.defaultdict(list)
    for case in cases:
        by_gpu[case.gpu].append(case)
    for gpu, members in by_gpu.items():
        estimator = AnalyticEstimator(hardware.gpu(gpu), burst=True)
        for start in range(0, len(members), 500):
            batch = members[start : start + 500]
            flat = [part for case in batch for part in case.signatures]
            prices = iter(estimator.price(flat))
            for case in batch:
                parts = [next(prices) or collective_price(case) for _ in case.signatures]
                total = sum(part.duration_ns for part in parts)
                line = lines[case.kind, gpu, case.source]
                line.predicted.append(total * 1e-9 + case.launch_s)
                line.measured.append(case.seconds)
                line.widths.append(sum(part.uncertainty * part.duration_ns for part in parts) / total)
    return lines


def collective_price(case: tables.Case):
    """The price of a case's collective on a cluster of its GPU's default nodes."""
    (work,) = case.signatures
    assert isinstance(work, Collective)
    gpu = hardware.gpu(case.gpu)
    node = hardware.node(gpu.default_node)
    fabric = hardware.fabric(case.fabric or node.default_fabric)
    nodes = -(-case.ranks // case.per_node)
    cluster = hardware.Cluster(gpu, node, fabric, nodes, case.per_node)
    return Hierarchical().alone(work, Group("all", tuple(range(case.ranks)), case.ranks), cluster)


def report(lines: dict[Key, Line]) -> Iterator[str]:
    """The table, and the same by kind and GPU over all sources."""
    merged: dict[Key, Line] = collections.defaultdict(Line)
    for (kind, gpu, _), line in lines.items():
        whole = merged[kind, gpu, "all"]
        for name in ("predicted", "measured", "widths"):
            getattr(whole, name).extend(getattr(line, name))
    for title, chosen in (("## By kind and GPU", merged), ("## By source", lines)):
        yield from ["", title, "", "| kind | GPU | source | points | median | p80 | p90 | bias | within stated |"]
        yield "|---|---|---|---:|---:|---:|---:|---:|---:|"
        for (kind, gpu, source), line in sorted(chosen.items()):
            signed = line.errors()
            error = np.abs(signed)
            inside = np.mean(error <= np.array(line.widths))
            figures = [np.median(error), *np.quantile(error, [0.8, 0.9]), np.median(signed), inside]
            text = " | ".join(f"{100 * figure:.1f} %" for figure in figures)
            yield f"| {kind} | {gpu} | {source} | {len(error)} | {text} |"


def main() -> None:
    """Read, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    public_datasets.options(parser, public_datasets.READERS)
    parser.add_argument("--points", type=int, default=600, help="per table of a dataset")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.out:
        check_writable(options.out)
    given = public_datasets.given(options, public_datasets.READERS)
    cases = public_datasets.read(given, options.points)
    text = [
        "# Analytic prices against public measurements",
        "",
        f"`validation/operators.py`, {datetime.date.today().isoformat()}. Errors are relative; bias is the signed",
        "median (positive: price too high). The last column is the share of points within the price's 80 % interval.",
        "Constants were fitted on half of the points of aiconfigurator, NeuSight, vidur and Frontier; the tables",
        "sample both halves. SimuMax, vLLM's products, and collectives of vidur and vTrain are only evaluated here,",
        "except for ratios that the constants' `source` names.",
        "",
        "What stands out:",
        "",
        "- SimuMax's B200 runs products, also grouped ones, a quarter slower than aiconfigurator's B200. Public whole",
        "  runs on GB200 agree with the faster ones.",
        "- V100's links form a mesh; odd group sizes follow no formula here.",
        "- Decoding and attention below 512 tokens are launch-bound, so the frameworks' extra kernels count.",
        "- One A100 log of send/receive is faster than all-to-all tables suggest.",
        "",
        f"Datasets: {public_datasets.named(given)}.",
        *report(compare(cases)),
    ]
    if options.out:
        write_file(options.out, ("\n".join(text) + "\n").encode())
    else:
        print("\n".join(text))


if __name__ == "__main__":
    with sentences():
        main()
