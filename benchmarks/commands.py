"""Benchmark of whole commands: wall time and memory.

    python benchmarks/commands.py [--runs N] [--only WORD]

Each command whose name has WORD runs once to warm caches and then N times. The medians are printed with their goals.
Every run must produce a result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from ran import Ran, at_least_one, presim

from presim.cli.script import sentences

EXAMPLES = Path(__file__).parent.parent / "examples"
LLAMA = ["--gpu", "h100-sxm", "--nodes", "16", "--gpus-per-node", "8"]


def checked(folder: Path, *args: str) -> Ran:
    """A command that writes a result. The result must have a step time."""
    out = folder / "result.json"
    measured = presim(*args[:1], "--quiet", "--json", str(out), *args[1:])
    assert json.loads(out.read_text())["step_time_s"] > 0
    return measured


def written(folder: Path, *args: str) -> Ran:
    """A command that writes a result of another kind."""
    out = folder / "result.json"
    measured = presim(*args, "--quiet", "--json", str(out))
    assert json.loads(out.read_text())
    return measured


def without_program(folder: Path) -> list[tuple[str, str, Callable[[], Ran]]]:
    """Rows of the README's and the guides' commands that need a model and no program."""
    cluster = ("llama3-8b", "--gpu", "h100-sxm")
    composed = (*cluster, "--nodes", "16", "--seq", "8192", "--recompute", "full")
    searched = (*cluster, "--nodes", "2", "--seq", "8192", "--global-batch", "64")
    served = (*cluster, "--rate", "8", "--slo", "ttft:500")
    deployed = ("llama3-70b", "--gpu", "h100-sxm", "--total-gpus", "16", "--slo", "ttft:500")
    trained = ("qwen3-8b", "--gpu", "h100-sxm", "--world-size", "8", "--response", "2000")
    return [
        ("`presim compose` of the README", "", lambda: checked(folder, "compose", *composed)),
        ("`presim search` of the README", "20 s", lambda: written(folder, "search", *searched)),
        ("`presim serve` of the README", "", lambda: written(folder, "serve", *served)),
        ("`presim deploy` of its guide", "", lambda: written(folder, "deploy", *deployed)),
        ("`presim rl` of its guide", "", lambda: written(folder, "rl", *trained)),
    ]


def rows(folder: Path) -> list[tuple[str, str, Callable[[], Ran]]]:
    """Name, goal and command of each row. A later row uses the saved trace of an earlier one."""
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
        *without_program(folder),
    ]


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=at_least_one("times"), default=3, metavar="N")
    parser.add_argument("--only", default="", metavar="WORD")
    options = parser.parse_args()
    runs = options.runs
    print("| command | goal | median, s | slowest, s | memory, GB |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, goal, command in rows(Path(folder)):
            if options.only not in name:
                continue
            command()
            measured = [command() for _ in range(runs)]
            seconds = [ran.wall_s for ran in measured]
            memory = max(ran.peak_bytes for ran in measured) / 1e9
            print(f"| {name} | {goal} | {statistics.median(seconds):.2f} | {max(seconds):.2f} | {memory:.2f} |")
        sizes = [path.stat().st_size for path in Path(folder).glob("saved/*")]
    if sizes:
        print(f"\nThe saved trace of three 70B steps takes {sum(sizes) / 1e6:.2f} MB.")


if __name__ == "__main__":
    with sentences():
        main()
