"""Compares composing all plans and capturing the best few with capturing every plan, on three small spaces.

    python validation/two_fidelities.py [--keep FILE.jsonl] [--seconds 240] [--out PAGE.md]

Each space is of one framework: Megatron-LM, torchtitan, and Hugging Face Transformers with accelerate. Every feasible
plan is captured on the framework like with ``presim search --confirm``. The page shows the rank by composing of the
best captured plan, and the share of time to find it. Captures are stored in FILE. After ``--seconds`` the script ends;
another call continues. The page is written once all captures exist.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from presim.cli.script import cpu_s, sentences
from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.answer.why import show
from presim.planner.confirm.capture import capture
from presim.planner.of_model import request_for_model
from presim.planner.run_search import run
from presim.planner.search_options import SearchOptions
from presim.planner.search_request import SearchRequest
from presim.planner.study import Answer
from presim.planner.trials.trial import Point, Trial, key
from presim.system.files import check_writable, write_file
from presim.units import percent, seconds

RESULTS = Path(__file__).parent / "results"
MODEL = {  # Llama 3 8B with four of its blocks
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "rope_theta": 500000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
SPACES: Mapping[str, Sequence[str]] = {
    "megatron": ["tp=1,2,4", "pp=1,2", "mbs=1,2", "recompute=none", "sp=true", "dp-style=zero1", "reshard=true"],
    "torchtitan": ["tp=1,2,4", "mbs=1,2", "recompute=none,full", "pp=1", "sp=true", "dp-style=fsdp2", "reshard=true"],
    "accelerate": [
        "mbs=1,2,4",
        "recompute=none,full",
        "reshard=true,false",
        "tp=1",
        "pp=1",
        "sp=false",
        "dp-style=fsdp2",
    ],
}
FIXED = ["cp=1", "shard=0", "vpp=1"]
SEQUENCE, GLOBAL_BATCH = 4096, 64
COUNTS = (1, 2)  # best composed plans that are captured
HEAD = """# Two fidelities

Written by `validation/two_fidelities.py` on {date}, with {cpus} cores of a shared machine: CPU time of all processes.
Llama 3 8B with four of its blocks, sequences of {sequence:,} tokens, a global batch of {batch}, on 8 H100 SXM.
"All" captures every feasible plan on the framework, one rank of each pipeline stage. Two fidelities compose all plans,
then capture the best one or the best two. Their share is of the time of "all"; their regret is what the plan that they
choose loses to the best captured plan, in captured step time.

| framework | captured | all | best by captures | place composed | composing | best 1 | regret | best 2 | regret |
|---|---|---|---|---|---|---|---|---|---|
"""


class Kept(msgspec.Struct, frozen=True):
    """One capture."""

    framework: str
    point: Point
    step_time_s: float | None
    cpu_s: float
    words: str


def main() -> None:
    """Capture what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, default=Path("build/two-fidelities.jsonl"))
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "two-fidelities.md")
    given = parser.parse_args()
    check_writable(given.out)
    os.environ["PRESIM_CACHE_MB"] = "0"  # nothing of earlier searches
    known = read(given.keep)
    ends = time.monotonic() + given.seconds
    rows, missing = [], 0
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_text(json.dumps(MODEL))
        for framework in SPACES:
            request = request_of(str(config), framework)
            before = cpu_s()
            answer = run(request)
            composing_s = cpu_s() - before
            missing += complete(request, answer, known, given.keep, ends)
            rows.append(row(framework, answer, known, composing_s))
    if missing:
        raise InputError(f"{missing} captures are missing: call it again, it goes on from {given.keep}")
    date = datetime.datetime.now(tz=datetime.UTC).date()
    cpus = len(os.sched_getaffinity(0))
    page = HEAD.format(date=date, cpus=cpus, sequence=SEQUENCE, batch=GLOBAL_BATCH)
    write_file(given.out, (page + "\n".join(rows) + "\n").encode())
    print(page + "\n".join(rows))


def request_of(model: str, framework: str) -> SearchRequest:
    """The search over a framework's space. Every plan is composed."""
    settings = SearchOptions(vary=[*SPACES[framework], *FIXED], framework=framework, prune=["none"], jobs=1)
    said = {"sequence": SEQUENCE, "global_batch": GLOBAL_BATCH}
    return request_for_model(model, settings, RunOptions(gpu="h100-sxm", nodes=1, checks=0), said)


def complete(request: SearchRequest, answer: Answer, known: dict[str, Kept], keep: Path, ends: float) -> int:
    """Capture feasible plans until the time ends, and return how many are missing."""
    missing = 0
    for place, number in enumerate(answer.best, 1):
        trial = answer.trial(number)
        name = name_of(request.framework, trial.point)
        if name in known:
            continue
        if time.monotonic() >= ends:
            missing += 1
            continue
        known[name] = captured(request, trial)
        print(f"{request.framework} {place} of {len(answer.best)}: {known[name]}", flush=True)
        keep.parent.mkdir(parents=True, exist_ok=True)
        with keep.open("ab") as file:
            file.write(msgspec.json.encode(known[name]) + b"\n")
    return missing


def captured(request: SearchRequest, trial: Trial) -> Kept:
    """Capture one plan on its framework."""
    before = cpu_s()
    with tempfile.TemporaryDirectory() as folder:
        framework, reply = capture(request, trial, Path(folder))
    step = reply.figures.step_time_s if reply.figures else None
    return Kept(framework or request.framework, trial.point, step, cpu_s() - before, reply.words)


def row(framework: str, answer: Answer, known: Mapping[str, Kept], composing_s: float) -> str:
    """The row of a framework; empty if none of its plans is captured."""
    found = [known.get(name_of(framework, answer.trial(number).point)) for number in answer.best]
    priced = [one for one in found if one is not None and one.step_time_s is not None]
    if not priced:
        return ""
    best = min(priced, key=lambda one: one.step_time_s or 0.0)
    everything = sum(one.cpu_s for one in found if one is not None)
    failed = sum(one is not None and one.step_time_s is None for one in found)
    knobs = [name for name, values in answer.varied.items() if len(values) > 1]
    assert best.step_time_s is not None
    cells = [
        framework,
        f"{len(priced)}" + (f" ({failed} failed)" if failed else ""),
        f"{everything:,.0f} s",
        f"{show(best.point, knobs)}: {seconds(best.step_time_s)}",
        str(found.index(best) + 1),
        f"{composing_s:,.0f} s",
    ]
    for count in COUNTS:
        first = [one for one in found[:count] if one is not None]
        chosen = min((one.step_time_s for one in first if one.step_time_s is not None), default=None)
        cells.append(percent((composing_s + sum(one.cpu_s for one in first)) / everything))
        cells.append("-" if chosen is None else f"{chosen / best.step_time_s - 1:.1%}")
    return f"| {' | '.join(cells)} |"


def read(keep: Path) -> dict[str, Kept]:
    """Earlier captures.

    Raises:
        InputError: a line is none.
    """
    if not keep.exists():
        return {}
    try:
        lines = [msgspec.json.decode(line, type=Kept) for line in keep.read_bytes().splitlines()]
    except msgspec.MsgspecError as error:
        raise InputError(
            f"{keep} has a line that is no capture ({error}); remove it, or name another --keep"
        ) from error
    return {name_of(one.framework, one.point): one for one in lines}


def name_of(framework: str, point: Point) -> str:
    """Name of a capture."""
    return f"{framework} {key(point)}"


if __name__ == "__main__":
    with sentences():
        main()
