"""Compares step times: a framework's log with `--live`, a simulation of the same trace, and another capture.

    python benchmarks/live_agreement.py [--runs N] [ROW...]

Rows: torchtitan (Llama-3 8B with FSDP on 128 GPUs, one rank), megatron (a GPT of 24 layers in two stages of two GPUs,
one rank of each), tiny (the same with four layers, which is host-bound). Each runs with the host's CPU time, N times
live and N times without, and once with `--host-time 0`; the live trace is saved and simulated again. Steps from the
fourth on count. The table has, for each run, the median step in the log and the differences of the other times. Host
time varies with other work on the machine, so nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ran import at_least_one, presim, run

from presim.cli.script import sentences
from presim.errors import InputError

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS, SETTLED = 9, 3
TOKENS = 8192  # of a rank's step, in the first row


def torchtitan(folder: Path) -> tuple[list[str], Callable[[str], list[float]]]:
    """The command after presim's options, and the step times (s) in its log."""
    if not (folder / "tokenizer").exists():
        run([sys.executable, EXAMPLES / "torchtitan_assets.py", folder])
    command = [
        *("--gpu", "h100-sxm", "--ranks", "0", "--steps", str(STEPS), "--", "torchrun", "--nnodes", "16"),
        *("--nproc-per-node", "8", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b"),
        *("--metrics.log_freq", "1", "--hf_assets_path", str(folder / "tokenizer"), "--dataloader.dataset", "c4_test"),
        *("--dataloader.dataset_path", str(folder / "c4_test"), "--training.steps", str(STEPS)),
    ]
    return command, lambda log: [TOKENS / float(tps.replace(",", "")) for tps in re.findall(r"tps: ([\d,]+)", log)]


def megatron(_: Path) -> tuple[list[str], Callable[[str], list[float]]]:
    """Like `torchtitan`; the first rank of each stage runs."""
    return _two_stages("--model", "1b", "--micro-batch", "8", "--recompute", "selective")


def tiny(_: Path) -> tuple[list[str], Callable[[str], list[float]]]:
    """Like `megatron`, with four layers."""
    return _two_stages("--model", "tiny")


def _two_stages(*model: str) -> tuple[list[str], Callable[[str], list[float]]]:
    command = [
        *("--gpu", "h100-sxm", "--world-size", "4", "--check", "0", "--steps", "0", str(EXAMPLES / "megatron_gpt.py")),
        *(*model, "--micro-batches", "4", "--tensor-parallel", "2", "--pipeline-parallel", "2", "--log"),
        *("--steps", str(STEPS)),
    ]
    return command, lambda log: [float(ms) / 1e3 for ms in re.findall(r"rank 2\] iteration .*?\(ms\): ([\d.]+)", log)]


ROWS = {"torchtitan": torchtitan, "megatron": megatron, "tiny": tiny}


def step_s(path: Path) -> float:
    """Median of a result's later steps, s."""
    return statistics.median(json.loads(path.read_text())["steps"]["times_s"][SETTLED:])


def row(name: str, runs: int, host: list[str], folder: Path) -> None:
    """One line of the table per run."""
    command, read = ROWS[name](folder)
    for number in range(runs):
        job = folder / f"{name}{number}{len(host)}"
        live, again, apart = (folder / f"{kind}.json" for kind in ("live", "again", "apart"))
        ours = ("run", "--quiet", *host)
        logged = read(presim(*ours, "--live", "--save", job, "--json", live, *command, cwd=folder).printed)
        if len(logged) <= SETTLED:
            raise InputError(f"{name} logged {len(logged)} steps; its first {SETTLED} do not count")
        presim("simulate", job, "--quiet", *host, "--json", again, cwd=folder)
        presim(*ours, "--json", apart, *command, cwd=folder)
        printed = statistics.median(logged[SETTLED:])
        cells = [f"{100 * (step / printed - 1):+.3f} %" for step in (step_s(live), step_s(again), step_s(apart))]
        load = f"{os.getloadavg()[0]:.0f}"
        print("|", " | ".join((name, "no" if host else "yes", f"{1e3 * printed:.3f}", *cells, load)), "|", flush=True)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{' or '.join(ROWS)}; all where none is named")
    parser.add_argument("--runs", type=at_least_one("times"), default=3, metavar="N")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {min(unknown)}; there are {', '.join(ROWS)}")
    print("| framework | host time | logged, ms | result of that run | its trace simulated | another capture | load |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.rows or ROWS:
            for host in ([], ["--host-time", "0"]):
                row(name, 1 if host else options.runs, host, Path(folder))  # without host time every run is alike


if __name__ == "__main__":
    with sentences():
        main()
