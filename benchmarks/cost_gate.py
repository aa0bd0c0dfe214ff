"""Fails if a command of the README takes more than 1.2 times the CPU time that is recorded for it.

    python benchmarks/cost_gate.py [--write] [--only VERB,VERB]

CPU time is that of all processes of a command, divided by the CPU time of a calibration loop that runs before and
after it, so that a slower or busier machine counts for both. The least of up to six runs is compared, so that the first
one within the limit is the last. ``--write`` records the least of three instead, in benchmarks/results/cost_gate.json.
`.ci/run` runs this behind the tests for the verbs that end in seconds. Four runs on a busy machine differed by up to
9 %; on another kind of processor ratios differ by more, so there nothing is compared.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from ran import Ran, presim

from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import decode_json, write_file

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "cost_gate.json"
SERVERS = ("view", "app")  # end only when they are interrupted
MOST_GROWTH = 1.2
RUNS_TO_RECORD = 3
RUNS_TO_JUDGE = 6  # at most
SCRIPT = """
import os, torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
model = nn.Sequential(nn.Embedding(1024, 1024), *(nn.Linear(1024, 1024) for _ in range(4))).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    for micro_batch in range(8):
        model(torch.ones(8, 128, dtype=torch.long, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_COMMAND = re.compile(r"^\$ (presim .+?)(?:\s{2,}#.*)?$", re.MULTILINE)


class Record(msgspec.Struct):
    """What was recorded: CPU time by verb, in calibration loops, and on which processor."""

    processor: str
    ratios: dict[str, float]


def processor() -> str:
    """This machine's processor, as Linux names it: model, family, model number and cache."""
    lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    fields = {name.strip(): text.strip() for name, _, text in lines}
    return ", ".join(fields.get(name, "unknown") for name in ("model name", "cpu family", "model", "cache size"))


def readme_commands() -> dict[str, list[str]]:
    """By verb, the words of each README command that ends by itself, in the README's order."""
    text = (ROOT / "README.md").read_text()
    commands = (shlex.split(match)[1:] for match in _COMMAND.findall(text))
    return {words[0]: words for words in commands if words[0] not in SERVERS}


def calibration_s() -> float:
    """CPU time of a loop as presim's are: Python objects, then columns."""
    start = time.process_time()
    counts: dict[int, int] = {}
    for number in range(1_500_000):
        counts[number % 1013] = counts.get(number % 1013, 0) + number
    numbers = np.arange(2_000_000, dtype=np.float64)
    for factor in range(4):
        np.sort(np.sin(numbers * (factor + 1)))
    return time.process_time() - start


def grown(ratios: Mapping[str, float], recorded: Mapping[str, float]) -> list[str]:
    """The verbs whose ratio has grown beyond the limit.

    Raises:
        InputError: a verb has no record.
    """
    if unrecorded := [verb for verb in ratios if verb not in recorded]:
        raise InputError(f"no time is recorded for {', '.join(unrecorded)}: record it with --write, on an idle machine")
    return [verb for verb, ratio in ratios.items() if ratio > MOST_GROWTH * recorded[verb]]


def ratio_of(words: list[str], folder: Path, runs: int, enough: float = 0.0) -> float:
    """The least CPU time of some runs of a command, in calibration loops; the first of ``enough`` is the last."""
    ratios = list[float]()
    while len(ratios) < runs and min(ratios, default=math.inf) > enough:
        before_s = calibration_s()
        cpu_s = quiet(words, folder).cpu_s
        ratios.append(2 * cpu_s / (before_s + calibration_s()))
    return min(ratios)


def quiet(words: list[str], folder: Path) -> Ran:
    """Run a verb without its report; what stands behind a script is the script's."""
    return presim(words[0], "-q", *words[1:], cwd=folder)


def prepare(folder: Path) -> None:
    """What the README's commands name: a script, its saved job, and a profile."""
    (folder / "train.py").write_text(SCRIPT)
    commands = readme_commands()
    quiet(commands["run"], folder)
    quiet(["simulate", "job", "--kineto", commands["import"][1]], folder)


def main() -> None:
    """Prints a table; raises where a command has grown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the ratios")
    parser.add_argument("--only", default="", help="verbs, with commas between; default: all of the README")
    args = parser.parse_args()
    commands = readme_commands()
    verbs = args.only.split(",") if args.only else list(commands)
    if unknown := [verb for verb in verbs if verb not in commands]:
        raise InputError(f"the README has no command of {unknown[0]}; there are {', '.join(commands)}")
    record = decode_json(RECORD.read_bytes(), Record) if RECORD.is_file() else Record(processor(), {})
    if record.processor != processor() and not args.write:
        print(f"not compared: times are recorded for {record.processor}, and this is {processor()}")
        return
    recorded = record.ratios if record.processor == processor() else {}
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        ratios = measured(commands, verbs, recorded, Path(name), judges=not args.write)
    if args.write:
        record = Record(processor(), dict(sorted({**recorded, **ratios}.items())))
        write_file(RECORD, msgspec.json.format(msgspec.json.encode(record)) + b"\n")
    elif slower := grown(ratios, recorded):
        raise InputError(
            f"{', '.join(slower)} took more than {MOST_GROWTH} times the recorded CPU time: find why, or record the "
            "new time with --write and say why in the commit"
        )


def measured(
    commands: Mapping[str, list[str]], verbs: list[str], recorded: Mapping[str, float], folder: Path, *, judges: bool
) -> dict[str, float]:
    """The ratio of each verb, which is also printed; where it is judged, runs end with the first within the limit."""
    ratios = {}
    print("| command | calibration loops | recorded |\n|---|---|---|")
    for verb in verbs:
        if judges:
            ratio = ratio_of(commands[verb], folder, RUNS_TO_JUDGE, MOST_GROWTH * recorded.get(verb, math.inf))
        else:
            ratio = ratio_of(commands[verb], folder, RUNS_TO_RECORD)
        ratios[verb] = round(ratio, 3)
        record = f"{recorded[verb]:.2f}" if verb in recorded else "-"
        print(f"| `presim {shlex.join(commands[verb])}` | {ratio:.2f} | {record} |", flush=True)
    return ratios


if __name__ == "__main__":
    with sentences():
        main()
