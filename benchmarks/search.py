"""Benchmark of `presim search` over plans: CPU time and memory. A repeated search must return the same result.

    python benchmarks/search.py               both spaces below, into results/search.md
    python benchmarks/search.py --keep FOLDER --budget 200      in pieces: call it again until it is done
    python benchmarks/search.py MODEL [--nodes N] [--knobs KNOB=V,V…]…

The first space is that of the README's search, the second one has all default knobs for Llama 3 70B on 512 H100. The
last one has the seven knobs and 1,920 points of Maya's search (its
table of configuration knobs; GPT-3 with 18.4 billion parameters on 64 H100), with the size of a micro-batch in place of
their number, and DDP or ZeRO-1 in place of its distributed optimizer. Results of earlier searches are not used, graphs
of models are.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import datetime
import json
import os
import tempfile
import threading
import time
from importlib import resources
from pathlib import Path

import msgspec

from presim.cli.script import cpu_s, sentences
from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.of_model import request_for_model
from presim.planner.run_search import run
from presim.planner.search_options import SearchOptions
from presim.planner.study import Answer
from presim.system.files import make_folder

RESULT = Path(__file__).parent / "results" / "search.md"
MAYA = [
    "tp=1,2,4,8",
    "pp=1,2,4,8",
    "mbs=1,2,4,8,16",
    "vpp=1,2,4",
    "recompute=none,full",
    "sequence_parallel=true,false",
]
MAYA += ["dp-style=ddp,zero1", "cp=1", "shard=0", "reshard=true"]
GPT3_18B = {"n_embd": 6144, "n_layer": 40, "n_head": 48, "vocab_size": 51200, "tie_word_embeddings": False}
HEAD = """# Searches

Written by `benchmarks/search.py` on {date}, on {cpus} cores of a shared machine: wall time is an upper bound. "Again":
the finished study is searched once more. Memory is of the search and its {cpus} workers together: the largest sum of
their proportional set sizes (PSS: what processes share counts once), looked at four times a second.

| space | search | again | memory | points by fate | best |
|---|---|---|---|---|---|
"""


@dataclasses.dataclass(frozen=True)
class Space:
    """A space to search."""

    model: str
    nodes: int
    sequence: int
    global_batch: int
    knobs: list[str]


def main() -> None:
    """Search, search again from the study, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--global-batch", type=int, default=1024)
    parser.add_argument("--budget", type=float)
    parser.add_argument("--knobs", nargs="*", default=[])
    parser.add_argument("--keep", type=Path, help="studies, and what their pieces took")
    given = parser.parse_args()
    if given.model:
        print(
            row(
                given.model,
                Space(given.model, given.nodes, given.sequence, given.global_batch, given.knobs),
                given.budget,
            )
        )
        return
    with contextlib.ExitStack() as stack:
        folder = str(given.keep or stack.enter_context(tempfile.TemporaryDirectory()))
        make_folder(Path(folder))
        config = json.loads(resources.files("presim.composition.graph").joinpath("models/gpt3-175b.json").read_text())
        Path(folder, "config.json").write_text(json.dumps(config | GPT3_18B))
        spaces = {
            "The README's, Llama 3 8B on 16 H100": Space("llama3-8b", 2, 8192, 64, []),
            "Llama 3 70B on 512 H100": Space("llama3-70b", 64, 8192, 1024, []),
            "Maya's, GPT-3 18.4B on 64 H100": Space(folder, 8, 2048, 512, MAYA),
        }
        rows = [row(name, space, given.budget, given.keep) for name, space in spaces.items()]
    date = datetime.datetime.now(tz=datetime.UTC).date()
    page = HEAD.format(date=date, cpus=len(os.sched_getaffinity(0))) + "\n".join(rows) + "\n"
    RESULT.write_text(page)
    print(page)


class Spent(msgspec.Struct):
    """Time and memory of the pieces of a search."""

    pieces: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    most_kib: int = 0
    is_done: bool = False


def row(name: str, space: Space, budget: float | None, keep: Path | None = None) -> str:
    """A space's row of the table.

    Raises:
        InputError: there are further pieces.
    """
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        study, spent_file = folder / f"{space.nodes}.study", folder / f"{space.nodes}.json"
        spent = msgspec.json.decode(spent_file.read_bytes(), type=Spent) if spent_file.exists() else Spent()
        settings = SearchOptions(vary=space.knobs, study=str(study), budget=budget)
        said = {"sequence": space.sequence, "global_batch": space.global_batch}
        request = request_for_model(space.model, settings, RunOptions(gpu="h100-sxm", nodes=space.nodes), said)
        os.environ["XDG_CACHE_HOME"] = str(folder)  # bounds and figures of earlier searches are elsewhere
        with Memory() as memory:
            first, wall, cpu = timed(lambda: run(request))
        if not spent.is_done:
            spent.pieces, spent.most_kib = spent.pieces + 1, max(spent.most_kib, memory.most_kib)
            spent.wall_s, spent.cpu_s = spent.wall_s + wall, spent.cpu_s + cpu
            spent.is_done = first.complete
            spent_file.write_bytes(msgspec.json.encode(spent))
        if keep and not spent.is_done:
            left = sum(trial.fate == "open" for trial in first.trials)
            raise InputError(f"{left:,} points of {name} are left: call it again")
        second, wall, cpu = timed(lambda: run(request))
        took, again = said_times(spent.wall_s, spent.cpu_s), said_times(wall, cpu)
    took += f" in {spent.pieces} pieces" if spent.pieces > 1 else ""
    assert budget or first == second, "a study that is searched again gives another answer"
    fates = collections.Counter(trial.fate for trial in first.trials)
    best = first.trial(first.best[0]) if first.best else None
    varied = {key: value for key, value in (first.best_point or {}).items() if key in first.varied}
    shown = ", ".join(f"{key} {value}" for key, value in varied.items())
    step = f": {best.figures.step_time_s:.3f} s" if best and best.figures else ""
    plans = f"{len(first.trials):,} plans of {first.points:,} points"
    return (
        f"| {name}, {plans} | {took} | {again} | {spent.most_kib >> 10} MiB | "
        f"{', '.join(f'{count:,} {fate}' for fate, count in fates.most_common())} | {shown}{step} |"
    )


class Memory:
    """Peak memory of this process and its children inside the context."""

    def __init__(self) -> None:
        self.most_kib = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(0.25):
            children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
            processes = [os.getpid(), *(int(child) for one in children for child in one.read_text().split())]
            self.most_kib = max(self.most_kib, sum(map(pss_kib, processes)))


def pss_kib(process: int) -> int:
    """Proportional set size; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def timed(search: object) -> tuple[Answer, float, float]:
    """The result of a call, with its wall and CPU seconds."""
    wall, before = time.monotonic(), cpu_s()
    answer: Answer = search()  # type: ignore[operator]
    return answer, time.monotonic() - wall, cpu_s() - before


def said_times(wall_s: float, cpu_s: float) -> str:
    """Wall and CPU time as text."""
    return f"{wall_s:.1f} s, {cpu_s:.1f} s of CPU"


if __name__ == "__main__":
    with sentences():
        main()
