"""What the live clock costs: wall and CPU time of a step with `--live` and without, and memory over a long run.

    python benchmarks/live.py [--runs N]

A step is the difference between two runs of different length over the difference, so that start-up is left out. Rows:
Llama-3.1-8B with FSDP2 on 128 GPUs, whose log synchronises once a step; a small network that reads its loss in each
step. The latter then runs 2,000 steps, and says how much memory the launcher (which simulates) and the script hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
LLAMA = ["--nodes", "16", "--gpus-per-node", "8", str(EXAMPLES / "llama_fsdp2.py"), "--log"]
SMALL = [str(Path(__file__).parent / "small_step.py")]
ROWS = (("Llama-8B, FSDP2 on 128 GPUs", LLAMA, 3, 23), ("eight small layers, one GPU", SMALL, 10, 310))
LONG = 2000


def presim(folder: Path, command: list[str], steps: int, live: bool) -> tuple[float, float, str]:
    """Wall and CPU seconds of a run, its children included, and what it printed."""
    out = folder / "result.json"
    entry = [sys.executable, "-c", "from presim.cli.main import main; main()", "run", "--quiet", "--json", str(out)]
    ours = ["--gpu", "h100-sxm", "--steps", "0", "--ranks", "0", *(["--live"] if live else [])]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*entry, *ours, *command, "--steps", str(steps)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    assert os.waitstatus_to_exitcode(status) == 0, printed
    assert json.loads(out.read_text())["exit"] == "ok"
    return seconds, usage.ru_utime + usage.ru_stime, printed


def per_step(folder: Path, command: list[str], few: int, many: int, live: bool) -> tuple[float, float]:
    """Wall and CPU milliseconds of one step."""
    short, long = (presim(folder, command, steps, live) for steps in (few, many))
    each_ms = 1e3 / (many - few)
    return (long[0] - short[0]) * each_ms, (long[1] - short[1]) * each_ms


def main() -> None:
    """Prints a table, and the memory of a long run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print("| a step of | wall, ms | with `--live` | CPU, ms | with `--live` | load |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        presim(Path(folder), LLAMA, 3, live=False)  # warms the caches
        for name, command, few, many in ROWS:
            found = [[per_step(Path(folder), command, few, many, live) for live in (False, True)] for _ in range(runs)]
            wall, cpu = ([statistics.median(run[live][i] for run in found) for live in (0, 1)] for i in (0, 1))
            load = f"{os.getloadavg()[0]:.0f}"
            print(f"| {name} | {wall[0]:.1f} | {wall[1]:.1f} | {cpu[0]:.1f} | {cpu[1]:.1f} | {load} |", flush=True)
        _, _, printed = presim(Path(folder), SMALL, LONG, live=True)
    print("\n" + "\n".join(line for line in printed.splitlines() if line.startswith("| ")))


if __name__ == "__main__":
    main()
