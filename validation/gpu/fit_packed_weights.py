"""Fits the time of engines' kernels for 4-bit weights, and tests it on held-out layers.

    python validation/gpu/fit_packed_weights.py DIR... [--toml FILE]

DIR holds a `serving.jsonl` of validation/gpu/campaign.py (validation/results/h100 and h200). Kernels were timed on GPUs
that rest in between, so the formula runs at such a GPU's clocks. Held out: every second layer, on both GPUs, predicted
by constants of the others.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from campaign import lines_of
from scipy.optimize import least_squares

from presim.cli.script import sentences
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.analytic.operator_constants import PackedConstants
from presim.cost.analytic.packed_weights import seconds
from presim.cost.profile.run_profile import gpu_named
from presim.errors import InputError
from presim.hardware import catalogue
from presim.system.files import write_file
from presim.trace.signatures import Gemm

SERVING = "serving.jsonl"
ROWS = (8, 16, 32, 64, 128)
_START = (5.0, 1.0, 0.8, 1.2, 3.0)
_LEAST, _MOST = (0.0, 0.0, 0.2, 0.3, 1.0), (30.0, 30.0, 1.0, 4.0, 12.0)
Case = tuple[Gemm, Device, float, str]  # product, GPU, seconds, layer


def cases(folders: Sequence[Path]) -> dict[str, list[Case]]:
    """Measured products by kernel."""
    found: dict[str, list[Case]] = collections.defaultdict(list)
    for folder in folders:
        for row in lines_of(folder / SERVING, "gpu", "family", "shape"):
            shape: Any = row.get("shape", {})
            kind, _, kernel = str(shape.get("kind", "")).partition(" ")
            if kind == "uint4" and row["family"] == "product" and "graph_s" in row:
                gpu = catalogue.gpu(gpu_named(row["gpu"]).id)
                work = Gemm(shape["m"], shape["n"], shape["k"], 1, "bfloat16", b_dtype="uint4", scaling=kernel)
                found[kernel].append((work, device_of(gpu, burst=True), row["graph_s"], shape["layer"]))
    if not found:
        raise InputError(
            f"{', '.join(map(str, folders))}: no {SERVING} has products of 4-bit weights; name folders that "
            "campaign.py --parts serving --out filled"
        )
    return found


def constants_of(values: Sequence[float], rows: int) -> PackedConstants:
    """As the formula takes them."""
    start, depth, memory, unpacking, blend = map(float, values)
    return PackedConstants(
        start_us=start,
        depth_us=depth,
        memory=memory,
        rows=rows,
        unpacking=unpacking,
        blend=blend,
        uncertainty=0.0,
        source="",
    )


def ratios(members: Sequence[Case], constants: PackedConstants) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Predicted over measured."""
    return np.array([seconds(work, device, constants)[0] / measured for work, device, measured, _ in members])


def fit(members: Sequence[Case]) -> PackedConstants:
    """Least squares of the logarithms, for each size of a tile."""
    best: tuple[float, PackedConstants] | None = None
    for rows in ROWS:

        def residuals(values: Sequence[float], rows: int = rows) -> np.ndarray[Any, np.dtype[np.float64]]:
            return np.log(ratios(members, constants_of(values, rows)))

        found = least_squares(residuals, _START, bounds=(_LEAST, _MOST), loss="soft_l1", f_scale=0.1, x_scale=_START)
        if best is None or found.cost < best[0]:
            best = found.cost, constants_of(found.x, rows)
    assert best is not None
    return best[1]


def held_out(members: Sequence[Case]) -> tuple[float, float, int]:
    """Median and 80th percentile of the error of every second layer, and their number."""
    layers = sorted({layer for *_, layer in members})
    errors: list[float] = []
    for turn in (0, 1):
        own = set(layers[turn::2])
        constants = fit([one for one in members if one[3] not in own])
        errors += list(np.abs(ratios([one for one in members if one[3] in own], constants) - 1))
    return float(np.median(errors)), float(np.quantile(errors, 0.8)), len(errors)


def main() -> None:
    """Print the constants and the errors of each kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+")
    parser.add_argument("--toml", type=Path, help="write the constants here, too")
    options = parser.parse_args()
    parts = []
    for kernel, members in sorted(cases(options.folders).items()):
        constants = fit(members)
        middle, wide, count = held_out(members)
        print(f"{kernel}: {len(members)} products, held out: median {middle:.1%}, 80 % within {wide:.1%}")
        values = {
            key: f"{value:.4g}"
            for key, value in msgspec.structs.asdict(constants).items()
            if key not in ("uncertainty", "source", "points", "held_out_median")
        }
        values |= {"uncertainty": f"{wide:.2g}", "points": str(count), "held_out_median": f"{middle:.2g}"}
        source = "presim, validation/results/h100 and h200: vLLM 0.33's kernels in CUDA graphs"
        parts.append(
            f"[packed_weights.hopper.{kernel}]\n"
            + "".join(f"{key} = {value}\n" for key, value in values.items())
            + f'source = "{source}"\n'
        )
    print(*parts, sep="\n")
    if options.toml:
        write_file(options.toml, "\n".join(parts).encode())


if __name__ == "__main__":
    with sentences():
        main()
