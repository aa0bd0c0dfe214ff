"""Compare learned and analytic prices on shapes that no fit has seen, per class of work, GPU and source.

    python validation/held_out.py DATASET... --out validation/results/operators-learned.md

DATASET are checkouts as `presim fit` takes them. Only rows of the tenth of shapes that
`presim.cost.fitting.split` keeps for tests are priced, in the regime in which tables are made. About two
minutes on one core.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from presim import hardware
from presim.cost.analytic.estimator import AnalyticEstimator
from presim.cost.fitting.job import gather
from presim.cost.fitting.split import part_of
from presim.cost.learned.estimator import LearnedEstimator
from presim.cost.learned.features import kind_of
from presim.cost.measured.rows import Measurement

CHUNK = 1000
Key = tuple[str, str, str]  # class of work, GPU, source


@dataclasses.dataclass
class Line:
    """Ratios of priced to measured durations."""

    analytic: list[float] = dataclasses.field(default_factory=list)
    learned: list[float] = dataclasses.field(default_factory=list)
    inside: list[bool] = dataclasses.field(default_factory=list)
    large: list[bool] = dataclasses.field(default_factory=list)  # of 100 us and more
    who: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def compare(rows: list[Measurement]) -> dict[Key, Line]:
    """Price the held-out rows, GPU by GPU."""
    lines: dict[Key, Line] = collections.defaultdict(Line)
    by_gpu: dict[str, list[Measurement]] = collections.defaultdict(list)
    for row in rows:
        if part_of(row.signature) == "test" and kind_of(row.signature):
            by_gpu[row.gpu].append(row)
    for gpu, members in sorted(by_gpu.items()):
        analytic = AnalyticEstimator(hardware.gpu(gpu), burst=True)
        learned = LearnedEstimator(hardware.gpu(gpu), burst=True)
        for start in range(0, len(members), CHUNK):
            _price(members[start : start + CHUNK], analytic, learned, lines)
    return lines


def _price(
    rows: list[Measurement], analytic: AnalyticEstimator, learned: LearnedEstimator, lines: dict[Key, Line]
) -> None:
    signatures = [row.signature for row in rows]
    for row, formula, price in zip(rows, analytic.price(signatures), learned.price(signatures)):
        beside = sum(part.duration_ns for part in analytic.price(list(row.beside)) if part)
        own = max(row.duration_ns - beside, 0.3 * row.duration_ns)
        said = price or formula
        line = lines[str(kind_of(row.signature)), row.gpu, row.source]
        line.analytic.append(formula.duration_ns / own)
        line.learned.append(said.duration_ns / own)
        line.inside.append(abs(own / said.duration_ns - 1) <= said.uncertainty)
        line.large.append(own >= 1e5)
        line.who[said.estimator] += 1


def report(lines: dict[Key, Line]) -> Iterator[str]:
    """Two tables: all sources of a class and GPU together, and each by itself."""
    merged: dict[Key, Line] = collections.defaultdict(Line)
    for (kind, gpu, _), line in lines.items():
        whole = merged[kind, gpu, "all"]
        for name in ("analytic", "learned", "inside", "large"):
            getattr(whole, name).extend(getattr(line, name))
        whole.who.update(line.who)
    for title, chosen in (("## By class and GPU", merged), ("## By source", lines)):
        yield from ("", title, "")
        yield "| class | GPU | source | points | formula | learned | from 100 us | median | bias | within stated | by |"
        yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|"
        for (kind, gpu, source), line in sorted(chosen.items()):
            ((who, _),) = line.who.most_common(1)
            yield f"| {kind} | {gpu} | {source} | {len(line.learned)} | {_figures(line)} | {who} |"


def _figures(line: Line) -> str:
    formula, learned = np.array(line.analytic) - 1, np.array(line.learned) - 1
    large = np.abs(learned)[np.array(line.large)]
    figures = [np.abs(formula).mean(), np.abs(learned).mean(), large.mean() if len(large) else None]
    figures += [np.median(np.abs(learned)), np.median(learned), np.mean(line.inside)]
    return " | ".join("" if figure is None else f"{100 * figure:.1f} %" for figure in figures)


def main() -> None:
    """Read, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="+", type=Path)
    parser.add_argument("--rows", type=int, default=9000, help="per table and kind of row, as in presim fit")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows, sources = gather(options.datasets, options.rows, print)
    read = ", ".join(f"{source.name} {source.commit} ({source.rows} rows)" for source in sources)
    text = [
        "# Learned prices on shapes that no fit has seen",
        "",
        "Written by `validation/held_out.py`. Mean absolute errors relative to what was measured, of the formula",
        "alone and with the learned correction; then the latter for work of 100 us and more, the median, the signed",
        "median (positive: priced too high), and the share of points within the stated 80 % interval. A shape is",
        "held out as a whole: no row with its weights' sizes, heads or elements was in the fit. Prices are of",
        "single kernels, as tables are made, not of a busy GPU. `by`: who priced most of them; a GPU without a",
        "model of its own borrows one, which these lines test too.",
        "",
        f"Datasets: {read}.",
        *report(compare(rows)),
    ]
    options.out.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
