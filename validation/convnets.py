"""Compare steps of convolutional networks with published throughput, as Markdown on standard output.

    python validation/convnets.py validation/convnets.csv --captures DIR > validation/results/convnets.md

Each row is captured on an emulated A100, since PyTorch's current builds have no code for a V100, and simulated on its
GPU. Captures are kept in DIR. Twenty rows take about ten minutes.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import check_folder, make_folder

CAPTURED_ON = "a100-80gb-sxm"
COLUMNS = ("id", "command", "gpu", "micro_batch", "step_time_s")
ABOUT = """# Convolutional networks

Steps of NVIDIA's DeepLearningExamples on one GPU: classifiers in NGC 21.03, with the batch sizes and layouts of its
configs.yml, captured with timm's models; nnU-Net in NGC 22.11. Printed by `python validation/convnets.py
validation/convnets.csv`. Figures of `convolution.py` and `depthwise.py` in `src/presim/cost/analytic` were fitted to
some of these steps: transposes for TF32 to ResNet, ResNeXt and nnU-Net on an A100, transposes of 16 bits to nnU-Net in
two dimensions there, Winograd to nnU-Net in two dimensions in fp32, depthwise filters in fp32 to EfficientNet in TF32.
No other row was used, so those of mixed precision on classifiers and nearly all of the V100 are held out.
"""
HEADER = (
    "| run | images/s | step, ms | presim, ms | 80 % interval | error |",
    "|---|---:|---:|---:|---:|---:|",
)


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table.

    Raises:
        InputError: there is no such file, or it lacks a column.
    """
    if not table.is_file():
        raise InputError(f"there is no table {table}; validation/convnets.csv is one")
    with table.open(newline="") as file:
        reader = csv.DictReader(file)
        if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
            raise InputError(f"{table} has no column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
        return list(reader)


def capture(row: dict[str, str], captures: Path) -> Path:
    """The saved job of a row."""
    job = captures / row["id"]
    if not (job / "job.json").exists():
        print(f"capturing {row['id']}", file=sys.stderr)
        presim("run", "--gpu", CAPTURED_ON, "--out", str(job), *row["command"].split())
    return job


def presim(*arguments: str) -> None:
    """Run a verb.

    Raises:
        InputError: it failed.
    """
    ended = subprocess.run(["presim", *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        words = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
        raise InputError(f"presim {arguments[0]} failed: {words[0]}")


def simulate(job: Path, gpu: str) -> dict[str, Any]:
    """The result of a saved job on a GPU."""
    result = job.with_suffix(f".{gpu}.json")
    presim("simulate", str(job), "--gpu", gpu, "--json", str(result))
    return dict(json.loads(result.read_text()))


def page(rows: list[dict[str, str]], captures: Path) -> Iterator[str]:
    """The table, under the errors in the median and the number of steps inside the interval."""
    lines, errors, inside = [], [], 0
    for row in rows:
        result, measured = simulate(capture(row, captures), row["gpu"]), float(row["step_time_s"])
        low, step, high = (result[f"step_time_{part}s"] for part in ("low_", "", "high_"))
        errors.append(step / measured - 1)
        inside += low <= measured <= high
        images = int(row["micro_batch"]) / measured
        lines.append(
            f"| {row['id']} | {images:.0f} | {measured * 1e3:.1f} | {step * 1e3:.1f} "
            f"| {low * 1e3:.0f} to {high * 1e3:.0f} | {100 * errors[-1]:+.1f} % |"
        )
    sizes = [abs(error) for error in errors]
    yield (
        f"{len(rows)} steps: median error {100 * statistics.median(sizes):.1f} %, largest {100 * max(sizes):.1f} %, "
        f"median bias {100 * statistics.median(errors):+.1f} %; {inside} of {len(rows)} inside the interval."
    )
    yield ""
    yield from (*HEADER, *lines)


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="CASES.csv", type=Path)
    parser.add_argument("--captures", metavar="DIR", type=Path, required=True, help="folder of saved captures")
    options = parser.parse_args()
    rows = read(options.table)
    check_folder(options.captures)
    make_folder(options.captures)
    print(ABOUT)
    print("\n".join(page(rows, options.captures)))


if __name__ == "__main__":
    with sentences():
        main()
