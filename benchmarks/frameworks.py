"""Benchmark of frameworks' own trainers under presim: wall and CPU time of whole commands.

    python benchmarks/frameworks.py [--runs N] [ROW...]

Rows: torchtitan (Llama-3 8B with FSDP on 128 GPUs), megatron (a GPT of 175 billion parameters, 12 pipeline stages of 8
GPUs, 64 micro-batches; needs Transformer Engine). Each command runs once to warm caches (inductor's, the hook's) and
then N times. A steady step is the difference between a run of 23 steps and one of 3, divided by 20. Wall time depends
on the load of the machine, which is printed beside it. CPU time is that of all processes and depends less on other
work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ran import at_least_one, presim, run

from presim.cli.script import sentences

EXAMPLES = Path(__file__).parent.parent / "examples"


def measure(folder: Path, *args: str | Path) -> tuple[float, float]:
    """Wall and CPU seconds of `presim run` with its child processes. The result must have a step time."""
    out = folder / "result.json"
    ran = presim("run", "--quiet", "--json", out, "--gpu", "h100-sxm", *args, cwd=folder)
    assert json.loads(out.read_text())["step_time_s"] > 0
    return ran.wall_s, ran.cpu_s


def torchtitan(folder: Path, runs: int) -> None:
    """The whole command, and a steady step of it."""
    run([sys.executable, EXAMPLES / "torchtitan_assets.py", folder])

    def command(steps: int, ranks: str = "0") -> tuple[float, float]:
        return measure(
            folder,
            *("--ranks", ranks, "--steps", str(steps), "--", "torchrun", "--nnodes", "16", "--nproc-per-node", "8"),
            *("-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b"),
            *("--hf_assets_path", str(folder / "tokenizer"), "--dataloader.dataset", "c4_test"),
            *("--dataloader.dataset_path", str(folder / "c4_test")),
        )

    command(3, "auto")
    show(
        "torchtitan Llama-3 8B, FSDP on 128 GPUs: whole command, 3 steps, with the default check of other ranks",
        "25 s",
        [command(3, "auto") for _ in range(runs)],
    )
    short, long = ([command(steps) for _ in range(runs)] for steps in (3, 23))
    show("the same, `--ranks 0`", "", short)
    per_step = [tuple((b - a) / 20 for a, b in zip(first, second)) for first, second in zip(short, long)]
    show("the same: one steady step", "0.5 s", per_step)


def megatron(folder: Path, runs: int) -> None:
    """All twelve stages, captured and simulated."""

    def command() -> tuple[float, float]:
        return measure(
            folder,
            *("--nodes", "12", "--gpus-per-node", "8", "--steps", "1", "--check", "0"),
            *(str(EXAMPLES / "megatron_gpt.py"), "--model", "175b", "--tensor-parallel", "8"),
            *("--pipeline-parallel", "12", "--micro-batches", "64", "--sequence-parallel"),
            *("--transformer-engine", "--recompute", "selective"),
        )

    show("Megatron GPT-175B, PP 12 x TP 8, 64 micro-batches", "90 s", [command() for _ in range(runs)])


ROWS: dict[str, Callable[[Path, int], None]] = {"torchtitan": torchtitan, "megatron": megatron}


def show(name: str, goal: str, measured: Sequence[tuple[float, ...]]) -> None:
    """One row of the table."""
    wall, cpu = (statistics.median(seconds) for seconds in zip(*measured))
    print(f"| {name} | {goal} | {wall:.2f} | {cpu:.2f} | {os.getloadavg()[0]:.0f} |", flush=True)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{' or '.join(ROWS)}; all where none is named")
    parser.add_argument("--runs", type=at_least_one("times"), default=3, metavar="N")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {min(unknown)}; there are {', '.join(ROWS)}")
    print("| command | goal | median wall, s | CPU, s | load |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for row in options.rows or ROWS:
            ROWS[row](Path(folder), options.runs)


if __name__ == "__main__":
    with sentences():
        main()
