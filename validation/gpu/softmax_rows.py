"""How often PyTorch's softmax reads its rows from memory, and its prices with and without these passes.

    python validation/gpu/softmax_rows.py NEUSIGHT [--out FILE]

NEUSIGHT is a checkout of sitar-lab/NeuSight, whose tables have rows of up to 16,384 elements on five GPUs. The sweeps
in `results/h100` and `results/h200` have rows of 32,000 and 128,256, forward and backward.
"""

from __future__ import annotations

import argparse
import collections
import statistics
from collections.abc import Iterator
from pathlib import Path

from presim.cli.script import sentences
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.analytic.memory_bound_kernels import elementwise_constants
from presim.cost.analytic.softmax_rows import at_least_passes, filled_cache
from presim.cost.estimators import estimators
from presim.cost.measured import table
from presim.cost.measured.importers import neusight
from presim.cost.measured.measured_rows import Measurement
from presim.errors import InputError
from presim.hardware import catalogue
from presim.system.files import check_writable, write_file
from presim.trace.signatures import Softmax

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = ("h100", "h200")
LEAST_BYTES = 200e6  # of a tensor: smaller ones may be in the cache from the start
ABOUT = """# Passes of softmax over long rows

Written by `validation/gpu/softmax_rows.py`. *Cache* is what the rows of all resident thread blocks need of the L2
cache; *again* the share of the second and third pass over a row that came from memory, at the bandwidth of element-wise
kernels ([decision](../../docs/decisions/softmax-rows.md)).

| GPU | elements in a row | cache | kernels | again |
|---|---:|---:|---:|---:|
"""
ERRORS = """
| sweep of | operator | kernels | error without the passes, mean | median | with them, mean | median |
|---|---|---:|---:|---:|---:|---:|
"""


def again(row: Measurement, device: Device) -> float:
    """The share of the two further passes of a forward softmax that came from memory."""
    bytes_per_s = device.memory_Bps * elementwise_constants(catalogue.gpu(row.gpu)).efficiency
    assert isinstance(row.signature, Softmax)
    passes = row.duration_ns * 1e-9 * bytes_per_s / row.signature.bytes_written
    return (passes - 2) / 2


def shares(root: Path) -> Iterator[str]:
    """Lines by GPU and power of two of the rows."""
    if not neusight.recognises(root):
        raise InputError(f"{root} is no checkout of NeuSight; name its folder")
    found: dict[tuple[str, int], list[tuple[float, float]]] = collections.defaultdict(list)
    for row in neusight.read(root):
        if not isinstance(row, Measurement) or not isinstance(row.signature, Softmax):
            continue
        if row.signature.row < 2048 or row.signature.bytes_written < LEAST_BYTES:
            continue
        device = device_of(catalogue.gpu(row.gpu))
        found[row.gpu, row.signature.row.bit_length()].append((filled_cache(row.signature, device), again(row, device)))
    for (gpu, bits), rows in sorted(found.items()):
        filled, missed = (statistics.median(values) for values in zip(*rows))
        yield f"| {gpu} | {1 << (bits - 1):,} to {(1 << bits) - 1:,} | {filled:.2f} | {len(rows)} | {missed:.2f} |"


def errors(folder: str) -> Iterator[str]:
    """Lines by operator of a card's sweep."""
    rows = [row for row in table.read(table.find(RESULTS / folder)).rows if isinstance(row.signature, Softmax)]
    gpu = catalogue.gpu(rows[0].gpu)
    found: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for row in rows:
        assert isinstance(row.signature, Softmax)
        answers = [estimator.price([row.signature])[0] for estimator in estimators(gpu)]
        price = next(answer for answer in answers if answer)
        raised = at_least_passes(row.signature, price, device_of(gpu))
        found[row.signature.operator].append(
            (price.duration_ns / row.duration_ns - 1, raised.duration_ns / row.duration_ns - 1)
        )
    for operator, pairs in sorted(found.items()):
        cells = [
            f"{statistics.fmean(map(abs, values)):.1%} | {statistics.median(values):+.1%}" for values in zip(*pairs)
        ]
        yield f"| {gpu.id} | {operator} | {len(pairs)} | {' | '.join(cells)} |"


def main() -> None:
    """Read both sources and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("neusight", metavar="NEUSIGHT", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "softmax-rows.md")
    options = parser.parse_args()
    check_writable(options.out)
    lines = [*shares(options.neusight), ERRORS.rstrip(), *(line for folder in FOLDERS for line in errors(folder))]
    write_file(options.out, (ABOUT + "\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    with sentences():
        main()
