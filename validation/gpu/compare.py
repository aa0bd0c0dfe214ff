"""Hold a campaign's measurements against what presim says, as Markdown on standard output.

    python validation/gpu/compare.py DIR

Operators are priced without the measured table; scripts are captured anew on the emulated GPU.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from campaign import RECIPE, lines_of

import presim
from presim.cost.given import estimators
from presim.cost.measured import table
from presim.hardware import catalogue
from presim.profile.job import gpu_named

GIB = 1 << 30


def operators(folder: Path) -> Iterator[str]:
    """The error of learned and analytic prices by family."""
    yield from ("## Operators", "", "| GPU | family | by | points | mean error | median | bias | within stated |")
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    found: dict[tuple[str, str, str], list[tuple[float, bool]]] = collections.defaultdict(list)
    rows = table.read(table.find(folder)).rows
    for gpu in sorted({row.gpu for row in rows}):
        mine = [row for row in rows if row.gpu == gpu]
        asked = estimators(catalogue.gpu(gpu))
        answers = [each.price([row.signature for row in mine]) for each in asked]
        for row, *prices in zip(mine, *answers):
            price = next((price for price in prices if price), None)
            if price:
                ratio = price.duration_ns / row.duration_ns
                key = gpu, str(row.signature.__struct_config__.tag), price.estimator
                found[key].append((ratio - 1, abs(1 / ratio - 1) <= price.uncertainty))
    for (gpu, family, by), pairs in sorted(found.items()):
        errors = np.array([error for error, _ in pairs])
        figures = (
            np.abs(errors).mean(),
            np.median(np.abs(errors)),
            np.median(errors),
            np.mean([held for _, held in pairs]),
        )
        yield (
            f"| {gpu} | {family} | {by} | {len(pairs)} | "
            + " | ".join(f"{100 * figure:.1f} %" for figure in figures)
            + " |"
        )


def steps(folder: Path) -> Iterator[str]:
    """Time, peaks and number of kernels of each script."""
    yield from ("", "## Steps", "", "| script | | measured | presim | error |", "|---|---|---:|---:|---:|")
    for row in lines_of(folder / "steps.jsonl"):
        if "error" in row:
            yield f"| {row['arguments']} | | {row['error']} | | |"
            continue
        gpu = gpu_named(str(row["gpu"])).id
        said = presim.run(str(RECIPE), *str(row["arguments"]).split(), gpu=gpu, quiet=True)
        for name, measured, predicted in (
            ("step, ms", row["step_s"] * 1e3, said.step_time_s * 1e3),
            ("peak allocated, GiB", row["peak_allocated"] / GIB, said.memory.peak_allocated_bytes / GIB),
            ("peak reserved, GiB", row["peak_reserved"] / GIB, said.memory.peak_reserved_bytes / GIB),
            ("kernels", row["kernels"], sum(family.count for family in said.families)),
        ):
            error = f"{100 * (predicted / measured - 1):+.1f} %"
            yield f"| {row['arguments']} | {name} | {measured:.2f} | {predicted:.2f} | {error} |"


def overlaps(folder: Path) -> Iterator[str]:
    """How much slower work was beside its neighbour."""
    yield from ("", "## Overlap", "", "| GPU | work | beside | slower by |", "|---|---|---|---:|")
    for row in lines_of(folder / "overlap.jsonl"):
        slower = 100 * (float(row["beside_s"]) / float(row["alone_s"]) - 1)
        yield f"| {row['gpu']} | {row['work']} | {row['beside']} | {slower:.1f} % |"


def main() -> None:
    """Print the three tables."""
    folder = Path(sys.argv[1])
    for part in (operators, steps, overlaps):
        print("\n".join(part(folder)))


if __name__ == "__main__":
    main()
