"""Wall time and memory of whole commands, as a user waits for them.

    python benchmarks/commands.py [--runs N]

Each command runs once to warm the caches and then N times; the medians are printed beside the goals. Every run is
checked for a result before it counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"
LLAMA = ["--gpu", "h100-sxm", "--nodes", "16", "--gpus-per-node", "8"]


def presim(*args: str) -> tuple[float, int]:
    """Seconds and peak resident bytes of one command, its children included."""
    command = [sys.executable, "-c", "from presim.cli.main import main; main()", *args]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    assert os.waitstatus_to_exitcode(status) == 0, command
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return seconds, max(usage.ru_maxrss, children) * 1024


def checked(folder: Path, *args: str) -> tuple[float, int]:
    """A command that writes a result, which has to hold a step time."""
    out = folder / "result.json"
    measured = presim(*args[:1], "--quiet", "--json", str(out), *args[1:])
    assert json.loads(out.read_text())["step_time_s"] > 0
    return measured


def rows(folder: Path) -> list[tuple[str, str, Callable[[], tuple[float, int]]]]:
    """Name, goal and command of each row; the saved trace of one serves the next."""
    script, saved = str(EXAMPLES / "llama_fsdp2.py"), str(folder / "saved")
    split = ["--model", "70b", "--tensor-parallel", "8"]
    return [
        ("`presim --help`", "0.3 s", lambda: presim("--help")),
        ("the job of `make demo`", "15 s, 1.5 GB", lambda: checked(folder, "run", *LLAMA, script)),
        (
            "the same, no second rank run beside it to check (`--check 0`)",
            "",
            lambda: checked(folder, "run", *LLAMA, "--check", "0", script),
        ),
        ("the same with Llama-70B", "", lambda: checked(folder, "run", *LLAMA, script, "--model", "70b")),
        (
            "Llama-70B, FSDP and tensor parallel",
            "30 s",
            lambda: checked(folder, "run", "--save", saved, *LLAMA, script, *split),
        ),
        ("`presim simulate` of that trace", "3 s", lambda: checked(folder, "simulate", saved)),
    ]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    print("| command | goal | median, s | slowest, s | memory, GB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, goal, command in rows(Path(folder)):
            command()
            measured = [command() for _ in range(runs)]
            seconds = [seconds for seconds, _ in measured]
            memory = max(memory for _, memory in measured) / 1e9
            print(f"| {name} | {goal} | {statistics.median(seconds):.2f} | {max(seconds):.2f} | {memory:.2f} |")
        sizes = [path.stat().st_size for path in (Path(folder) / "saved").iterdir()]
    print(f"\nThe saved trace of three 70B steps takes {sum(sizes) / 1e6:.2f} MB.")


if __name__ == "__main__":
    main()
