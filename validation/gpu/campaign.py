"""Measure operators, training steps and overlap on this machine's GPU, within a budget of time a call.

    python validation/gpu/campaign.py --out DIR [--seconds 540] [--parts operators,steps,...] [--jobs DIR ...]

Each part keeps what it has and goes on from there. README.md beside this file says what is measured.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from presim.cli.script import sentences
from presim.cost.profile.run_profile import local_gpu, profile
from presim.cost.profile.sweep import standard_sweep
from presim.errors import InputError
from presim.system.files import check_folder, make_folder
from presim.trace import job_store

HERE = Path(__file__).parent
RECIPES = HERE.parent / "recipes"
RECIPE, FAMILIES_RECIPE, ROLLOUT_RECIPE = (
    RECIPES / name for name in ("single_gpu.py", "single_gpu_families.py", "trl_rollouts.py")
)
STEPS = (
    "--model bert-large --batch 16 --sequence 512 --precision half",
    "--model llama3.2-1b --batch 2 --sequence 2048 --precision half",
    "--model llama3.2-1b --batch 2 --sequence 2048 --precision mixed --checkpoint",
    "--model gpt2-large --batch 4 --sequence 1024 --precision mixed",
    "--model opt-1.3b --batch 2 --sequence 2048 --precision half",
    "--model vit-h14 --batch 32 --image 224 --precision half",
    "--model convnextv2-huge --batch 16 --image 224 --precision mixed",
    "--model t5-large --batch 8 --sequence 512 --precision full",
    "--model gpt2 --batch 16 --sequence 1024 --precision mixed --compile",
    "--model llama3.2-1b --batch 9 --sequence 2048 --precision half",  # about the largest that fits in 80 GB
    "--model llama3.2-1b --batch 10 --sequence 2048 --precision half",
)
FAMILIES = (
    "--model resnet50 --batch 128 --precision mixed --optimizer sgd --channels-last",
    "--model resnet50 --batch 64 --precision full --optimizer sgd",
    "--model efficientnetv2-m --batch 64 --precision scaled",
    "--model swin-base --batch 64 --precision mixed",
    "--model sd15-unet --batch 8 --precision mixed --optimizer fused",
    "--model sd-autoencoder --batch 8 --precision half",
    "--model dit-xl --batch 32 --precision mixed",
    "--model whisper-small --batch 16 --precision mixed",
    "--model wav2vec2-base --batch 8 --precision mixed",
    "--model qwen3-moe --batch 1 --precision half",
    "--model gemma3-1b --batch 4 --precision half --optimizer fused",
    "--model llama3.1-8b-lora --batch 2 --precision half",
    "--model lstm --batch 64 --precision mixed",
    "--model graphsage --batch 100 --precision full",
    "--model dlrm --batch 8192 --precision full --optimizer adagrad",
    "--model nnunet-3d --batch 2 --precision full",
    "--model mamba2 --batch 2 --precision half",
    "--model resnet50 --batch 128 --precision mixed --optimizer sgd --channels-last --compile",
)
ROLLOUTS = ("--shapes 28,1024,3072 --tokens 32 --steps 24",)
# Scripts of cases, and the seconds that a call gives them
SCRIPTS = {"energy": 70.0, "latencies": 45.0, "quantised": 110.0, "serving": 150.0}
CUT_OFF = "not done after"
ENDS = (0, 1, 2)  # exit codes of a script after which another process would not go on
GRACE_S = 15.0  # for the case that is measured when a script's time is up
MOST_STEP_S = 120.0  # a script that takes longer is given up
MARGIN_S = 10.0  # left for writing and leaving


def operators(jobs: Sequence[Path], out: Path, ends: float) -> str:
    """The work of saved jobs and the standard sweep, as far as the time goes."""
    of_jobs = [
        signature
        for job in jobs
        for rank_trace in job_store.load(job).traces.values()
        for signature in rank_trace.signatures
    ]
    made = profile([*of_jobs, *standard_sweep()], out, max(ends - time.monotonic() - MARGIN_S, 1), local_gpu(), print)
    return f"operators: {made.measured} measured, {made.num_known} known before, {made.num_unmeasured} left"


def steps(name: str, recipe: Path, runs: Sequence[str], out: Path, ends: float) -> str:
    """One line for each run of a script; one that fails has its last words there.

    One that is cut off is tried again by the next call, unless it had all of this one.
    """
    path = out / f"{name}.jsonl"
    done = {line["arguments"] for line in lines_of(path, "arguments")}
    pending = [arguments for arguments in runs if arguments not in done]
    for number, arguments in enumerate(pending):
        left = ends - time.monotonic() - MARGIN_S
        if left < 25:
            return f"{name}: {len(pending) - number} left"
        trace = out / f"{name.removesuffix('s')}{runs.index(arguments) + 1}.pt.trace.json.gz"
        row = outcome([str(recipe), *arguments.split()], min(left, MOST_STEP_S), trace)
        if str(row.get("error", "")).startswith(CUT_OFF) and number > 0 and left < MOST_STEP_S:
            return f"{name}: {len(pending) - number} left"
        append(path, {"arguments": arguments, **row})
    return f"{name}: nothing left"


def overlap(out: Path, ends: float) -> str:
    """Pairs of kernels; the script itself goes on where it was stopped."""
    left = ends - time.monotonic() - MARGIN_S
    if left < 30:
        return "overlap: not begun"
    command = [sys.executable, str(HERE / "overlap.py"), str(out / "overlap.jsonl"), str(left - 10)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return "overlap: cut off, the next call goes on"
    return f"overlap: {ended.stdout.strip() or ended.stderr.strip()[-200:]}"


def scripted(name: str, most: float, out: Path, ends: float) -> str:
    """A script of cases, again after each case that lost the GPU or the process; at most so many seconds in all."""
    ends = min(ends - MARGIN_S, time.monotonic() + most)
    said = f"{name}: not begun"
    while (left := ends - time.monotonic()) > 10:
        command = [sys.executable, str(HERE / f"{name}.py"), str(out / f"{name}.jsonl"), str(left - 5)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=left + GRACE_S, check=False)
        except subprocess.TimeoutExpired:
            return f"{name}: cut off, the next call goes on"
        words = (ended.stdout.strip() or ended.stderr.strip())[-200:]
        said = f"{name}: {words or f'ended with {ended.returncode}'}"
        if ended.returncode in ENDS:
            break
    return said


def outcome(command: list[str], seconds: float, trace: Path | None = None) -> dict[str, object]:
    """What steps.py sees of a script, or why there is nothing; ``trace``: where PyTorch's profile of a step goes.

    Each script has a process of its own, forked from one that has imported PyTorch and the models.
    """
    paths = [str(HERE), str(RECIPE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(paths).split(os.pathsep)))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["steps", Path(command[0]).stem])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_steps, args=(sender, command, trace))
    process.start()
    sender.close()
    try:
        row: dict[str, object] = receiver.recv() if receiver.poll(seconds) else {"error": f"{CUT_OFF} {seconds:.0f} s"}
    except EOFError:
        process.join()
        row = {"error": f"it ended with exit code {process.exitcode}"}
    process.kill()
    process.join()
    return row


def run_steps(results: Connection, command: list[str], trace: Path | None) -> None:
    """In the script's own process."""
    import steps

    steps.send(results, command, trace)


def lines_of(path: Path, *needed: str) -> list[dict[str, object]]:
    """The rows of a file of JSON lines that may not be there yet.

    Raises:
        InputError: a line is no such row, or lacks what is needed of one that tells of no error.
    """
    rows: list[dict[str, object]] = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: line {number} is no row of a campaign; take it out") from error
        lacking = [name for name in needed if name not in rows[-1] and "error" not in rows[-1]]
        if lacking:
            raise InputError(f"{path}: line {number} has no {lacking[0]!r}; take it out and measure again")
    return rows


def append(path: Path, row: dict[str, object]) -> None:
    """Add one row."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


PARTS = {
    "steps": functools.partial(steps, "steps", RECIPE, STEPS),
    "families": functools.partial(steps, "families", FAMILIES_RECIPE, FAMILIES),
    "rollouts": functools.partial(steps, "rollouts", ROLLOUT_RECIPE, ROLLOUTS),
    "overlap": overlap,
    **{name: functools.partial(scripted, name, most) for name, most in SCRIPTS.items()},
}


def main() -> None:
    """Run the parts in their order until the time is used up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of what was measured; a call goes on there")
    parser.add_argument("--seconds", type=float, default=540.0, help="budget of this call (default: %(default)s)")
    parser.add_argument("--parts", default="steps,overlap,operators", help="in this order (default: %(default)s)")
    parser.add_argument("--jobs", type=Path, nargs="*", default=(), help="saved jobs whose operators are measured too")
    options = parser.parse_args()
    parts = options.parts.split(",")
    runs = {"operators": functools.partial(operators, options.jobs), **PARTS}
    if unknown := [name for name in parts if name not in runs]:
        raise InputError(f"--parts {options.parts}: there is no part {unknown[0]!r}; there are {', '.join(runs)}")
    check_folder(options.out)
    ends = time.monotonic() + options.seconds
    local_gpu()  # a step that found no GPU would stand for one that fails on it
    make_folder(options.out)
    for name in parts:
        print(runs[name](options.out, ends), flush=True)


if __name__ == "__main__":
    with sentences():
        main()
