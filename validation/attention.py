"""Compares prices of cuDNN's attention in a step with its authors' benchmark, which timed it alone.

    python validation/attention.py [papers/cudnn.csv]

Prints one line per GPU, version, precision, model and direction, in Markdown. Signatures have no block scaling with 32
elements, so MXFP8 is priced as FP8 with one factor per tensor. Takes three seconds.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from presim.cli.script import sentences
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.learned.learned_estimator import LearnedEstimator
from presim.cost.price import Price
from presim.errors import InputError
from presim.hardware.catalogue import find
from presim.hardware.gpu_schema import Gpu
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.gpus import gpu_of
from presim.studies.validation.published_operators import OPERATORS, signature_of

_BY = ("gpu", "library_version", "precision", "model", "direction")
_HEADINGS = ("GPU", "library", "type", "shapes", "direction", "points", "mean error", "median", "within stated")


@functools.cache
def _estimators(gpu: str) -> tuple[LearnedEstimator, AnalyticEstimator]:
    chip = find(Gpu, gpu)
    return LearnedEstimator(chip), AnalyticEstimator(chip)


def price_of(case: Case) -> Price:
    """That of a step, on a GPU that is busy.

    Raises:
        CannotBuildError: the row describes no work that is priced.
    """
    signature = signature_of(case)
    for estimator in _estimators(gpu_of(case)):
        (price,) = estimator.price([signature])
        if price is not None:
            return price
    raise CannotBuildError(f"nothing prices {case.text('id')}")


def lines(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The table's rows, with groups in order of appearance."""
    groups: dict[tuple[str, ...], list[tuple[float, bool]]] = {}
    for row in rows:
        case = Case(row)
        price, measured_ns = price_of(case), (case.number("time_us") or 0.0) * 1e3
        holds = abs(measured_ns - price.duration_ns) <= price.uncertainty * price.duration_ns
        groups.setdefault(tuple(row[name] for name in _BY), []).append((price.duration_ns / measured_ns - 1, holds))
    for names, found in groups.items():
        errors, within = np.array([error for error, _ in found]), np.mean([holds for _, holds in found])
        figures = f"{len(found)} | {np.abs(errors).mean():.1%} | {np.median(errors):+.0%} | {within:.0%}"
        yield f"| {' | '.join(names)} | {figures} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path, default=Path(__file__).parent / "papers" / "cudnn.csv")
    rows = OPERATORS.read(parser.parse_args().table)
    if missing := [name for name in _BY if any(not row.get(name) for row in rows)]:
        raise InputError(f"a row has no {missing[0]}; each needs {', '.join(_BY)}")
    print(f"| {' | '.join(_HEADINGS)} |")
    print("|---|---|---|---|---|---:|---:|---:|---:|")
    try:
        print(*lines(rows), sep="\n")
    except CannotBuildError as error:
        raise InputError(str(error)) from None


if __name__ == "__main__":
    with sentences():
        main()
