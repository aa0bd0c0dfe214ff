"""Benchmark of the live clock: wall and CPU time of a step with and without `--live`, and memory over a long run.

    python benchmarks/live.py [--runs N]

The time of a step is the difference between runs of different length, divided by the difference in steps, which
excludes start-up. Rows: Llama-3.1-8B with FSDP2 on 128 GPUs, which synchronises once per step; a small network that
reads its loss in each step. The latter also runs 2,000 steps, with the memory of the launcher (which simulates) and the
script.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from ran import Ran, at_least_one, presim

from presim.cli.script import sentences

EXAMPLES = Path(__file__).parent.parent / "examples"
LLAMA = ["--nodes", "16", "--gpus-per-node", "8", str(EXAMPLES / "llama_fsdp2.py"), "--log"]
SMALL = [str(Path(__file__).parent / "small_step.py")]
ROWS = (("Llama-8B, FSDP2 on 128 GPUs", LLAMA, 3, 23), ("eight small layers, one GPU", SMALL, 10, 310))
LONG = 2000


def measure(folder: Path, command: list[str], steps: int, live: bool) -> Ran:
    """Run a number of steps. The run must succeed."""
    out = folder / "result.json"
    ours = ["--quiet", "--json", out, "--gpu", "h100-sxm", "--steps", "0", "--ranks", "0"]
    ran = presim("run", *ours, *(["--live"] if live else []), *command, "--steps", str(steps))
    assert json.loads(out.read_text())["exit"] == "ok", ran.printed
    return ran


def per_step(folder: Path, command: list[str], few: int, many: int, live: bool) -> tuple[float, float]:
    """Wall and CPU milliseconds of one step."""
    short, long = (measure(folder, command, steps, live) for steps in (few, many))
    each_ms = 1e3 / (many - few)
    return (long.wall_s - short.wall_s) * each_ms, (long.cpu_s - short.cpu_s) * each_ms


def main() -> None:
    """Prints a table, and the memory of a long run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=at_least_one("times"), default=3, metavar="N")
    runs = parser.parse_args().runs
    print("| a step of | wall, ms | with `--live` | CPU, ms | with `--live` | load |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), LLAMA, 3, live=False)  # warms the caches
        for name, command, few, many in ROWS:
            found = [[per_step(Path(folder), command, few, many, live) for live in (False, True)] for _ in range(runs)]
            wall, cpu = ([statistics.median(run[live][i] for run in found) for live in (0, 1)] for i in (0, 1))
            load = f"{os.getloadavg()[0]:.0f}"
            print(f"| {name} | {wall[0]:.1f} | {wall[1]:.1f} | {cpu[0]:.1f} | {cpu[1]:.1f} | {load} |", flush=True)
        printed = measure(Path(folder), SMALL, LONG, live=True).printed
    print("\n" + "\n".join(line for line in printed.splitlines() if line.startswith("| ")))


if __name__ == "__main__":
    with sentences():
        main()
