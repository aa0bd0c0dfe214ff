"""Breaks down steps of which only a few micro-batches were simulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from presim.analysis.summarise import steady_breakdown
from presim.analysis.time.breakdown import Breakdown, break_down
from presim.analysis.time.steady_rounds import find_rounds
from presim.analysis.time.step_period import find_stretches, repeated_steps
from presim.analysis.time.steps import TraceSteps, find_steps
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.trace.schema import Trace


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Micro-batches that a job's traces lack: repetitions of one period."""

    begins: Mapping[int, NDArray[np.int64]]  # by rank: the entries at which micro-batches begin
    memory: Mapping[int, Trace]  # by rank: the memory entries of all micro-batches
    period: int  # micro-batches in one period
    times: int  # number of periods that the traces lack
    is_measured: bool = False  # with host times of a capture: durations of periods are compared, not states

    def of_ranks(self, ranks: Iterable[int], origin: Mapping[int, int]) -> Repeats:
        """The repetitions of these ranks; ``origin``: for a rank that was split off, the rank whose trace it has."""
        recorded_ranks = [rank for rank in ranks if origin.get(rank, rank) in self.begins]
        begins = {rank: self.begins[origin.get(rank, rank)] for rank in recorded_ranks}
        memory = {
            rank: self.memory[origin.get(rank, rank)]
            for rank in recorded_ranks
            if origin.get(rank, rank) in self.memory
        }
        return dataclasses.replace(self, begins=begins, memory=memory)


class NotRepeatedError(Exception):
    """The simulation of a few micro-batches does not prove that further ones only repeat."""


def break_down_ranks(
    priced: Mapping[int, PricedTrace], timelines: Mapping[int, Timeline], repeats: Repeats | None, latency_ns: int
) -> dict[int, tuple[TraceSteps, Breakdown]]:
    """By rank, its steps and the breakdown of the steady one."""
    traces = {rank: priced_trace.trace for rank, priced_trace in priced.items()}
    if repeats is None:
        return {rank: steady_breakdown(trace, timelines[rank], latency_ns) for rank, trace in traces.items()}
    if not traces.keys() <= repeats.begins.keys():
        raise NotRepeatedError
    in_order = [timelines[rank] for rank in traces], [repeats.begins[rank] for rank in traces]
    if repeats.is_measured:
        step_stretches = find_rounds(list(traces.values()), *in_order, repeats.period)
    else:
        step_stretches = find_stretches(list(traces.values()), *in_order, repeats.period)
    if step_stretches is None:
        raise NotRepeatedError
    result = {}
    for rank_index, (rank, trace) in enumerate(traces.items()):
        steps = find_steps(trace, timelines[rank])
        stretch = step_stretches[steps.steady_index]
        repeated_interval = (stretch.start_ns, stretch.end_ns, repeats.times)
        parts = break_down(
            trace, timelines[rank], steps.steady, launch_latency_ns=latency_ns, repeated_interval=repeated_interval
        )
        result[rank] = repeated_steps(steps, step_stretches, rank_index, repeats.times), parts
    return result
