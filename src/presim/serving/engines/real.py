"""Run a workload through an engine's own scheduler in simulated time, for `--engine vllm` and `--engine sglang`.

The `Scheduler` of vLLM or SGLang (queues, memory, prefix cache, preemption, asynchronous scheduling) runs unmodified
in a separate process, with the emulated libraries if PyTorch's CUDA libraries are missing. Only the executor is
presim's: a step returns after the time given by `StepTimes`. The loop around it follows vLLM's
`step_with_batch_queue`, or SGLang's `event_loop_overlap`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np

from presim.errors import InputError
from presim.serving.engines.engine import Apart, Fleet, Limits, StepTimes, Tiers
from presim.serving.workloads import workload as workloads
from presim.serving.workloads.workload import Ints, Workload
from presim.system.files import decode_json, read_bytes, write_file
from presim.system.files.scratch import temporary_folder

Engine = Literal["vllm", "sglang"]
NAMES: dict[Engine, str] = {"vllm": "vLLM", "sglang": "SGLang"}
_LIMIT_S = 900
_TABLES = ("token_ns", "shared_ns", "head_ns", "prefill_ns", "decode_ns")
_OPTIONAL = ("lora_ns", "prompt_launch_ns", "decode_launch_ns")  # tables by tokens, which may be missing


@dataclasses.dataclass(frozen=True, eq=False)
class SchedulerRun:
    """Times from an engine's scheduler; -1 if nothing happened."""

    first: Ints  # ns
    last: Ints
    steps: int


def serve(workload: Workload, fleet: Fleet, libraries: Path, engine: Engine = "vllm") -> SchedulerRun:
    """Serve a workload on one engine with its own scheduler. ``libraries``: folder of the emulated CUDA libraries."""
    _check(workload, fleet, engine)
    with temporary_folder("engine") as folder:
        _write_input(workload, fleet, folder)
        paths = f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        variables = {"LD_LIBRARY_PATH": paths, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        source = str(Path(__file__).parents[3])
        variables["PYTHONPATH"] = f"{source}:{os.environ.get('PYTHONPATH', '')}"
        words = [sys.executable, "-m", f"presim.serving.engines.{engine}_engine", str(folder)]
        try:
            ended = subprocess.run(
                words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise InputError(
                f"{NAMES[engine]}'s scheduler did not finish within {_LIMIT_S} s; serve fewer requests"
            ) from error
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise InputError(f"{NAMES[engine]}'s scheduler cannot be run here: {last}; `make {engine}` installs it")
        return SchedulerRun(**read(folder))


def _check(workload: Workload, fleet: Fleet, engine: Engine) -> None:
    """Refuse what an engine's scheduler is not run with."""
    limits, option = fleet.replicas[0].limits, f"--engine {engine}"
    if len(fleet.replicas) != 1:
        raise InputError(f"{option} supports one engine; leave out --replicas and --dp")
    if limits.pipeline_parallel_size > 1 and (engine == "sglang" or not limits.async_scheduling):
        raise InputError(f"{option} runs pipeline stages only with vLLM's asynchronous scheduling; leave out --pp")
    if any(limits.tiers.sizes) or fleet.pool_blocks:
        raise InputError(f"{option} keeps blocks on the GPU only; leave out --kv-host, --kv-disk and --kv-shared")
    if fleet.life is not None:
        raise InputError(f"{option} serves one engine that is always there; leave out --autoscale and --mtbf")
    if workload.concurrency or (workload.parent >= 0).any():
        raise InputError(f"{option} supports timed arrivals only; leave out --concurrency and --turns")
    if limits.scheduler != engine:
        raise InputError(f"{option} runs {NAMES[engine]}'s scheduler: choose its decisions, --scheduler {engine}")
    if engine == "vllm" and limits.scheduler_recv_interval > 1:
        raise InputError(f"{option} looks at arrivals before each step; leave out --scheduler-recv-interval")
    if engine == "sglang" and (limits.draft_tokens or limits.max_loras or (workload.grammar_ns >= 0).any()):
        raise InputError(
            f"{option} is run without drafts, adapters and grammars; leave out --speculative, --max-loras and "
            "--structured"
        )


def _write_input(workload: Workload, fleet: Fleet, folder: Path) -> None:
    replica = fleet.replicas[0]
    workloads.write(workload, folder / "workload.jsonl")
    times = replica.times
    tables: dict[str, Any] = {}
    for name in (*_TABLES, *_OPTIONAL):
        table = getattr(times, name)
        tables[name] = np.zeros(len(times.token_ns)) if table is None else table
    np.savez(folder / "times.npz", **tables)
    costs = {
        field.name: getattr(replica.times, field.name)
        for field in dataclasses.fields(replica.times)
        if field.name not in (*_TABLES, *_OPTIONAL)
    }
    content = {
        "limits": dataclasses.asdict(replica.limits),
        "costs": costs,
        "input_ns": fleet.input_ns,
        "input_token_ns": fleet.input_token_ns,
        "output_ns": fleet.output_ns,
    }
    write_file(folder / "engine.json", json.dumps(content).encode())


def read_input(folder: Path) -> tuple[Workload, Limits, StepTimes, int, int, int]:
    """Read the parent's input, in the process that runs the engine."""
    content = decode_json(read_bytes(folder / "engine.json", "serve again"))
    with np.load(folder / "times.npz") as tables:
        times = StepTimes(**{name: tables[name] for name in (*_TABLES, *_OPTIONAL)}, **content["costs"])
    workload = workloads.read(folder / "workload.jsonl")
    limit_fields = content["limits"]
    apart_groups = tuple(Apart(**group) for group in limit_fields["apart"])
    limits = Limits(**{**limit_fields, "tiers": Tiers(**limit_fields["tiers"]), "apart": apart_groups})
    return workload, limits, times, content["input_ns"], content["output_ns"], content["input_token_ns"]


def write_result(folder: Path, first: Ints, last: Ints, steps: int) -> None:
    """Write the result for `read`."""
    content = {"first": first.tolist(), "last": last.tolist(), "steps": steps}
    write_file(folder / "served.json", json.dumps(content).encode())


def read(folder: Path) -> dict[str, Any]:
    """Read the result of `write_result`."""
    content = decode_json(read_bytes(folder / "served.json", "serve again"))
    columns = {name: np.array(content[name], np.int64) for name in ("first", "last")}
    return {**columns, "steps": content["steps"]}
