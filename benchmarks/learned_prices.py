"""Benchmark of learned corrections: reading a model file, and pricing new products.

    python benchmarks/learned_prices.py

Prints one row for each GPU with a correction of products in half precision: CPU time of one process, best of several
runs, without importing numpy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from presim import hardware
from presim.cli.script import sentences
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.learned.learned_estimator import PACKAGED, LearnedEstimator
from presim.cost.learned.learned_model_file import read
from presim.cost.learned.trees import Forest
from presim.trace.signatures import Gemm, Signature

RUNS = 10
CLASS = "gemm-half"
PRODUCTS: list[Signature] = [  # of a layer's sizes, none of them in a table
    Gemm(m=1000 + 13 * rows, n=512 * n + 24, k=512 * k + 40, batch=1, dtype="bfloat16", layout="NT")
    for rows in range(16)
    for n in (2, 8, 24)
    for k in (2, 8, 16, 32)
]


def best_s(call: Callable[[], object]) -> float:
    """CPU time of the fastest run."""
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def arrays(path: Path) -> Forest:
    """Read a model as the estimator does."""
    model = read(path)
    return Forest.of(model.thresholds, model.trees, model.limit)


def rows() -> Iterator[str]:
    """One row per model."""
    for path in sorted(PACKAGED.glob(f"{CLASS}.*.json")):
        model = read(path)
        gpu = hardware.gpu(model.gpu)
        learned, formula = LearnedEstimator(gpu), AnalyticEstimator(gpu)
        assert all(price is not None for price in learned.price(PRODUCTS))  # and the file is read now
        leaves = max(len(tree.split) + 1 for tree in model.trees) // 2
        reading = best_s(lambda path=path: arrays(path))
        each = [best_s(lambda asked=asked: asked.price(PRODUCTS)) / len(PRODUCTS) for asked in (formula, learned)]
        yield (
            f"| {gpu.id} | {len(model.trees)} | {leaves} | {path.stat().st_size / 1e3:.0f} | {reading:.2f} "
            f"| {1e3 * each[0]:.2f} | {1e3 * each[1]:.2f} |"
        )


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| GPU | trees | leaves of one | kB | reading, s | a product by the formula, ms | learned, ms |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    print(*rows(), sep="\n")


if __name__ == "__main__":
    with sentences():
        main()
