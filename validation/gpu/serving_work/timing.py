"""Time work the way engines run it: in a replayed CUDA graph, with inputs that the L2 cache does not hold."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

Run = Callable[[], object]
Row = dict[str, Any]

COLD_BYTES = 256 << 20  # inputs in turn add up to this: five times the L2 cache of an H100
MOST_COPIES = 64
GRAPH_S = 1e-3  # device time of one replay at least, unless MOST_LAUNCHES are reached
MOST_LAUNCHES = 200
REPLAYS = 9
ALONE = 7
MOST_UNUSED = 16 << 30  # bytes of PyTorch's cached memory
QUEUED_CYCLES = 600_000  # the device is kept busy while the host queues what is timed


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of work; `family` and `shape` name it in the results."""

    family: str
    shape: Row
    make: Callable[[], Sequence[Run]]  # the same work on different memory; calls take turns
    measure: Callable[[Sequence[Run]], Row] | None = None  # None: `in_graph`


def copies(bytes_: int) -> int:
    """How many sets of inputs of this size take turns."""
    return max(1, min(MOST_COPIES, math.ceil(COLD_BYTES / bytes_)))


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0, device: str = "cuda") -> torch.Tensor:
    """Random values; types of 8 bits are converted from 16."""
    if dtype.itemsize > 1:
        return torch.empty(shape, device=device, dtype=dtype).normal_(0.0, scale)
    return torch.empty(shape, device=device, dtype=torch.bfloat16).normal_(0.0, scale).to(dtype)


def elapsed(run: Run) -> float:
    """Seconds between two events around what is queued while the device is busy with something else."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(QUEUED_CYCLES)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3


def captured(run: Run) -> torch.cuda.CUDAGraph:
    """The work as a CUDA graph; without the collection of garbage that `torch.cuda.graph` does each time."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > MOST_UNUSED:
        torch.cuda.empty_cache()  # a capture cannot free what earlier cases left
    with torch.cuda.stream(_stream()):
        graph.capture_begin(pool=_holder().pool())
        try:
            run()
        except Exception:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
    return graph


@functools.cache
def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


@functools.cache
def _holder() -> torch.cuda.CUDAGraph:
    """A graph that lives as long as the process, and with it the memory that all graphs share."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(_stream()):
        graph.capture_begin()
        torch.zeros(1, device="cuda")
        graph.capture_end()
    return graph


def in_graph(calls: Sequence[Run]) -> Row:
    """Seconds of one call in a graph of many, and alone between events."""
    for call in calls:
        call()
    turn = itertools.cycle(calls)
    alone = [elapsed(next(turn)) for _ in range(ALONE)]
    launches = launches_of(statistics.median(alone), len(calls))
    order = [calls[index % len(calls)] for index in range(launches)]
    graph = captured(lambda: in_order(order))
    graph.replay()
    times = [elapsed(graph.replay) / launches for _ in range(REPLAYS)]
    middle = statistics.median(times)
    return {
        "graph_s": middle,
        "spread": (max(times) - min(times)) / 2 / middle,
        "alone_s": statistics.median(alone),
        "launches": launches,
        "copies": len(calls),
    }


def in_order(calls: Sequence[Run]) -> None:
    """Run them; no output outlives the next call, as in an engine."""
    for call in calls:
        call()


def launches_of(seconds: float, copies: int) -> int:
    """Calls in a graph: whole turns over the inputs that last long enough, where so many calls are allowed."""
    wanted = math.ceil(GRAPH_S / max(seconds, 1e-9))
    turns = math.ceil(min(wanted, MOST_LAUNCHES) / copies)
    return max(turns, 1) * copies


def eager(calls: Sequence[Run]) -> Row:
    """Seconds of one call that is too long or too irregular for a graph."""
    calls[0]()
    times = [elapsed(call) for call in itertools.islice(itertools.cycle(calls), max(3, len(calls)))]
    return {"eager_s": statistics.median(times), "spread": (max(times) - min(times)) / 2 / statistics.median(times)}
