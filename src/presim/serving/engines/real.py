"""A workload through vLLM's own scheduler, in simulated time: what `--engine vllm` runs.

vLLM's `Scheduler` (queues, KV-cache manager, prefix cache, preemption, asynchronous scheduling) runs unmodified, in a
process of its own with the emulated libraries where PyTorch misses its own. Only the executor is presim's: a step
returns after the time that `StepTimes` gives it. The engine core's loop is that of vLLM's `step_with_batch_queue`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from presim.errors import InputError
from presim.files import write_file
from presim.serving.engines.engine import Fleet, Limits, StepTimes, Tiers
from presim.serving.workloads import workload as workloads
from presim.serving.workloads.workload import Ints, Workload

_LIMIT_S = 900
_TABLES = ("token_ns", "shared_ns", "head_ns", "prefill_ns", "decode_ns")


@dataclasses.dataclass(frozen=True, eq=False)
class Real:
    """What vLLM's scheduler did; -1 where nothing happened."""

    first: Ints  # ns
    last: Ints
    steps: int


def serve(workload: Workload, fleet: Fleet, libraries: Path) -> Real:
    """Serve a workload on one engine with vLLM's scheduler. ``libraries``: the emulated ones of CUDA."""
    if len(fleet.replicas) != 1 or fleet.replicas[0].limits.pipeline_parallel_size > 1:
        raise InputError("--engine vllm serves one engine of one pipeline stage; leave out --replicas, --dp and --pp")
    if any(fleet.replicas[0].limits.tiers.sizes):
        raise InputError("--engine vllm keeps blocks on the GPU alone; leave out --kv-host and --kv-disk")
    if fleet.life is not None:
        raise InputError("--engine vllm serves one engine that is always there; leave out --autoscale and --mtbf")
    if fleet.replicas[0].limits.scheduler_recv_interval > 1:
        raise InputError("--engine vllm looks at arrivals before each step; leave out --scheduler-recv-interval")
    if workload.concurrency or (workload.parent >= 0).any():
        raise InputError("--engine vllm takes requests that arrive by the clock; leave out --concurrency and --turns")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _hand_over(workload, fleet, folder)
        paths = f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        said = {"LD_LIBRARY_PATH": paths, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        source = str(Path(__file__).parents[3])
        said["PYTHONPATH"] = f"{source}:{os.environ.get('PYTHONPATH', '')}"
        words = [sys.executable, "-m", "presim.serving.engines.vllm_engine", name]
        try:
            ended = subprocess.run(
                words, env={**os.environ, **said}, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise InputError(f"vLLM's scheduler was not done within {_LIMIT_S} s; serve fewer requests") from error
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise InputError(f"vLLM's scheduler cannot be run here: {last}; `make vllm` installs it")
        return Real(**read(folder))


def _hand_over(workload: Workload, fleet: Fleet, folder: Path) -> None:
    replica = fleet.replicas[0]
    workloads.write(workload, folder / "workload.jsonl")
    times = replica.times
    loras = np.zeros(len(times.token_ns)) if times.lora_ns is None else times.lora_ns
    np.savez(folder / "times.npz", lora_ns=loras, **{name: getattr(times, name) for name in _TABLES})
    costs = {
        field.name: getattr(replica.times, field.name)
        for field in dataclasses.fields(replica.times)
        if field.name not in (*_TABLES, "lora_ns")
    }
    said = {
        "limits": dataclasses.asdict(replica.limits),
        "costs": costs,
        "input_ns": fleet.input_ns,
        "output_ns": fleet.output_ns,
    }
    write_file(folder / "engine.json", json.dumps(said).encode())


def take_over(folder: Path) -> tuple[Workload, Limits, StepTimes, int, int]:
    """What the parent wrote, in the process that runs vLLM."""
    said = json.loads((folder / "engine.json").read_text())
    with np.load(folder / "times.npz") as tables:
        times = StepTimes(**{name: tables[name] for name in (*_TABLES, "lora_ns")}, **said["costs"])
    workload = workloads.read(folder / "workload.jsonl")
    limits = Limits(**{**said["limits"], "tiers": Tiers(**said["limits"]["tiers"])})
    return workload, limits, times, said["input_ns"], said["output_ns"]


def give_back(folder: Path, first: Ints, last: Ints, steps: int) -> None:
    """Write what happened, for `read`."""
    said = {"first": first.tolist(), "last": last.tolist(), "steps": steps}
    write_file(folder / "served.json", json.dumps(said).encode())


def read(folder: Path) -> dict[str, Any]:
    """What `give_back` wrote."""
    said = json.loads((folder / "served.json").read_text())
    columns = {name: np.array(said[name], np.int64) for name in ("first", "last")}
    return {**columns, "steps": said["steps"]}
