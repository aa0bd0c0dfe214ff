"""The measuring process: reads signatures, writes one line of JSON for each. It imports torch, but not the shim.

``python -m presim.profile.bench WORK RESULTS SECONDS``: WORK has a JSON array of signatures; RESULTS is appended to.
The first line says which card this is. Each kernel is timed between two events that are queued behind a sweep over
more memory than L2 holds, so that the cache is cold. Where a signature leaves open how operands lie, each way is timed.
Products keep the card at work until the host has queued all runs: no event waits for the host, which takes longer to
launch many a kernel than the kernel itself, and clocks stay those of a busy card. A failure after which the card
answers this process no more ends it, and the caller's next process goes on behind that signature.
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

from presim.profile import CARD_LOST, NO_GPU, kernels
from presim.profile.times import row
from presim.trace.signatures import Signature

_WARM_UP_S = 2.0  # of products, until the power limit has set the clocks
_LEAST_RUNS, _MOST_RUNS = 7, 50
_RUNS_S = 0.25  # spent on one signature
_FLUSH = 2.0  # sizes of L2
_AHEAD = 2.0  # times as long as the host took for it the last time
_MOST_AHEAD_S = 0.5
_ATTEMPTS = 3  # at having queued all runs before the first begins


@dataclasses.dataclass(frozen=True)
class Busy:
    """Products that keep the card at work for a while."""

    side: torch.Tensor
    seconds: float  # one product takes

    def queue(self, seconds: float) -> None:
        """As many as take so long."""
        for _ in range(math.ceil(min(seconds, _MOST_AHEAD_S) / self.seconds)):
            torch.matmul(self.side, self.side)


def main(work: str, results: str, seconds: str) -> int:
    """Measure until the work or the time is used up; gives the exit code."""
    if not torch.cuda.is_available():
        return NO_GPU
    ends = time.monotonic() + float(seconds)
    signatures = msgspec.json.decode(Path(work).read_bytes(), type=list[Signature])
    with Path(results).open("a") as out:
        _say(out, {"gpu": torch.cuda.get_device_name(), **versions()})
        flush = torch.empty(int(_FLUSH * _l2_bytes()), dtype=torch.int8, device="cuda")
        busy = _warm_up(min(_WARM_UP_S, float(seconds) / 10))
        for signature in signatures:
            if time.monotonic() > ends:
                break
            row = _measured(signature, flush, busy)
            _say(out, {"signature": json.loads(msgspec.json.encode(signature)), **row})
            if "error" in row and not _usable():
                return CARD_LOST
    return 0


def versions() -> dict[str, str]:
    """What a table's origin says of all its rows."""
    return {"torch": torch.__version__, "cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}


def _say(out: Any, row: dict[str, Any]) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


def _l2_bytes() -> int:
    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 64 << 20)


def _warm_up(seconds: float) -> Busy:
    side = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    ends = time.monotonic() + seconds
    took = math.inf
    while time.monotonic() < ends or took == math.inf:
        began = time.perf_counter()
        for _ in range(10):
            torch.matmul(side, side)
        torch.cuda.synchronize()
        took = (time.perf_counter() - began) / 10
    return Busy(side, max(took, 1e-5))


def _measured(signature: Signature, flush: torch.Tensor, busy: Busy) -> dict[str, Any]:
    """Median and spread of one signature, or why there are none."""
    try:
        with kernels.prepared(signature) as runs:
            return row(list(map(functools.partial(_timed, flush=flush, busy=busy), runs)))
    except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError) as error:
        # The last two are of a PyTorch that lacks the call, or an argument of it.
        return {"error": (str(error).splitlines() or [type(error).__name__])[0][:200]}


def _usable() -> bool:
    """Whether the card still works for this process, with the memory of what failed given back.

    An address that was out of bounds, or a check that a kernel made, fails every call that follows.
    """
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True


def _timed(run: kernels.Run, flush: torch.Tensor, busy: Busy) -> list[float]:
    """Times in ms, without what PyTorch launches in front."""
    whole = _taken(run.whole, flush, busy)
    front = statistics.median(_taken(run.front, flush, busy)) if run.front else 0.0
    return [each - front for each in whole]


def _taken(run: Callable[[], Any], flush: torch.Tensor, busy: Busy) -> list[float]:
    """Times of one call, in ms; what it allocates is freed at once, and the next run is given it again."""
    _queued(run, flush, 3)  # loads kernels, lets libraries choose
    torch.cuda.synchronize()
    marks, host_s = _queued(run, flush, 3)
    once = _elapsed(marks)[-1]
    count = int(min(max(_RUNS_S * 1e3 / max(once, 1e-3), _LEAST_RUNS), _MOST_RUNS))
    return _times(run, flush, busy, count, host_s / 3 * count)


def _times(run: Callable[[], Any], flush: torch.Tensor, busy: Busy, count: int, host_s: float) -> list[float]:
    """Times in ms, of runs that were all queued before the first began.

    Work that the host waits for itself (a copy from memory that is not pinned) never is; it is taken as it comes.
    """
    for _ in range(_ATTEMPTS):
        busy.queue(_AHEAD * host_s)
        marks, host_s = _queued(run, flush, count)
        ahead = not marks[0][0].query()
        times = _elapsed(marks)
        if ahead:
            break
        host_s *= _AHEAD
    return times


_Marks = list[tuple[torch.cuda.Event, torch.cuda.Event]]


def _queued(run: Callable[[], Any], flush: torch.Tensor, count: int) -> tuple[_Marks, float]:
    """Events around each run, and how long the host took to queue all of it, s."""
    began = time.perf_counter()
    marks = []
    for _ in range(count):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        marks.append((start, end))
    return marks, time.perf_counter() - began


def _elapsed(marks: _Marks) -> list[float]:
    """Times in ms, once all is done."""
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in marks]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
