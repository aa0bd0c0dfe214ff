"""The measuring process: read signatures, write one line of JSON for each. It imports torch, but not the shim.

``python -m presim.cost.profile.bench WORK RESULTS SECONDS``: WORK has a JSON array of signatures; lines are appended to
RESULTS. The first line names the GPU. Each run follows a sweep over more memory than L2 holds, so that the cache is
cold. The GPU's tracer times it, or two events where there is no tracer. If a signature leaves the memory layout of
operands open, each layout is timed. Matrix products keep the GPU busy until the host has queued all runs: otherwise the
kernels of a run would wait for the host, whose launch overhead exceeds the time of many kernels; and clocks stay those
of a busy GPU. The process ends after a failure that leaves the GPU unusable for it; the caller then starts another
process after that signature.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from presim.cost.profile import CARD_LOST, NO_GPU, kernels
from presim.cost.profile.call_times import row
from presim.cost.profile.tracer import sweep, sweep_name, traced
from presim.system.files import decode_json, read_bytes
from presim.trace.signatures import Signature

_WARM_UP_S = 2.0  # of products, until the power limit has settled the clocks
_LEAST_RUNS, _MOST_RUNS = 7, 50
_RUNS_S = 0.25  # budget per signature
_FLUSH = 2.0  # sizes of L2
_BUSY_FACTOR = 2.0  # busy time relative to the host's last queueing time
_MAX_BUSY_S = 0.5
_ATTEMPTS = 3  # at queueing all runs before the first begins


@dataclasses.dataclass(frozen=True)
class Cold:
    """The sweep that empties L2 before each run."""

    memory: torch.Tensor
    name: str  # of its kernel in traces; empty where there is no tracer


@dataclasses.dataclass(frozen=True)
class Busy:
    """Matrix products that keep the GPU busy for a given time."""

    side: torch.Tensor
    seconds: float  # duration of one product

    def queue(self, seconds: float) -> None:
        """Queue products for a given time."""
        for _ in range(math.ceil(min(seconds, _MAX_BUSY_S) / self.seconds)):
            torch.matmul(self.side, self.side)


_Marks = list[tuple[torch.cuda.Event, torch.cuda.Event]]


@dataclasses.dataclass
class Queued:
    """Runs that the host has queued."""

    marks: _Marks = dataclasses.field(default_factory=list)
    host_s: float = 0.0  # to queue all
    ahead: bool = False  # before the first began


def main(work: str, results: str, seconds: str) -> int:
    """Measure until all signatures are done or the time is up; returns the exit code."""
    if not torch.cuda.is_available():
        return NO_GPU
    deadline_s = time.monotonic() + float(seconds)
    signatures = decode_json(read_bytes(work, "measure again"), list[Signature])
    with Path(results).open("a") as out:
        flush = cold()
        timer = "CUPTI" if flush.name else "events"
        _write_line(out, {"gpu": torch.cuda.get_device_name(), "timer": timer, **versions()})
        busy = warm_up(min(_WARM_UP_S, float(seconds) / 10))
        for signature in signatures:
            if time.monotonic() > deadline_s:
                break
            row = _measured(signature, flush, busy)
            _write_line(out, {"signature": msgspec.to_builtins(signature), **row})
            if "error" in row and not _can_use_gpu():
                return CARD_LOST
    return 0


def versions() -> dict[str, str]:
    """Versions for the source of a table."""
    return {"torch": torch.__version__, "cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}


def _write_line(out: Any, row: dict[str, Any]) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


def cold() -> Cold:
    """The sweep of this machine's first GPU."""
    memory = torch.zeros(int(_FLUSH * l2_bytes()), dtype=torch.int8, device="cuda")
    return Cold(memory, sweep_name(memory))


def l2_bytes() -> int:
    """Size of the GPU's L2 cache; 64 MiB if PyTorch does not tell it."""
    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 64 << 20)


def warm_up(seconds: float) -> Busy:
    """Multiply matrices for a time, until the power limit has settled the clocks."""
    side = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    deadline_s = time.monotonic() + seconds
    took = math.inf
    while time.monotonic() < deadline_s or took == math.inf:
        began = time.perf_counter()
        for _ in range(10):
            torch.matmul(side, side)
        torch.cuda.synchronize()
        took = (time.perf_counter() - began) / 10
    return Busy(side, max(took, 1e-5))


def _measured(signature: Signature, flush: Cold, busy: Busy) -> dict[str, Any]:
    """Median and spread of one signature, or the reason why there is none."""
    try:
        with kernels.prepared(signature) as runs:
            return row(list(map(functools.partial(_timed, flush=flush, busy=busy), runs)))
    except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError) as error:
        # The last two come from a PyTorch without the call or one of its arguments.
        return {"error": (str(error).splitlines() or [type(error).__name__])[0][:200]}


def _can_use_gpu() -> bool:
    """Whether this process can still use the GPU; frees the memory of the failed call.

    After an out-of-bounds access or a device-side assert, every later call fails.
    """
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


def _timed(run: kernels.SignatureRun, flush: Cold, busy: Busy) -> list[float]:
    """Times in ms, without the kernels that PyTorch launches first."""
    call_ms = call_times(run.call, flush, busy)
    first_ms = statistics.median(call_times(run.front, flush, busy)) if run.front else 0.0
    return [milliseconds - first_ms for milliseconds in call_ms]


def call_times(run: Callable[[], Any], flush: Cold, busy: Busy) -> list[float]:
    """Times of one call in ms; its result is freed at once, so that the next run gets the same memory."""
    _queued(run, flush, 3)  # loads kernels and lets libraries choose algorithms
    torch.cuda.synchronize()
    marks, host_s = _queued(run, flush, 3)
    once = _elapsed(marks)[-1]
    count = int(min(max(_RUNS_S * 1e3 / max(once, 1e-3), _LEAST_RUNS), _MOST_RUNS))
    return _times(run, flush, busy, count, host_s / 3 * count)


def _times(run: Callable[[], Any], flush: Cold, busy: Busy, count: int, host_s: float) -> list[float]:
    """Times in ms of runs that were all queued before the first began.

    That is impossible for work that the host waits for, such as a copy from pageable memory, which is timed as it is.
    """
    times: list[float] = []
    for _ in range(_ATTEMPTS):
        queued = Queued()

        def queue(queued: Queued = queued, host_s: float = host_s) -> None:
            busy.queue(_BUSY_FACTOR * host_s)
            queued.marks, queued.host_s = _queued(run, flush, count)
            queued.ahead = not queued.marks[0][0].query()

        times = traced(queue, flush.name)
        if len(times) != count:  # no tracer, or work of which it has no record
            times = _elapsed(queued.marks)
        if queued.ahead:
            break
        host_s = _BUSY_FACTOR * queued.host_s
    return times


def _queued(run: Callable[[], Any], flush: Cold, count: int) -> tuple[_Marks, float]:
    """Events around each run, and the host's time to queue all of it in seconds."""
    began = time.perf_counter()
    marks = []
    for _ in range(count):
        sweep(flush.memory)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        marks.append((start, end))
    return marks, time.perf_counter() - began


def _elapsed(marks: _Marks) -> list[float]:
    """Elapsed times in ms, after all runs have finished."""
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in marks]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
