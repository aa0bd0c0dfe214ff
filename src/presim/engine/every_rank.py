"""Simulates every rank of a job several times with random factors on CPU, kernel and collective times.

The program is built once. Each draw multiplies its times and runs the loop again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.price import PricedTrace
from presim.engine import loop
from presim.engine.program import JobProgram, build_program
from presim.engine.simulate import run_program
from presim.engine.simulation_options import Options
from presim.trace.schema import Trace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Factors:
    """Factors on the times of each rank [rank]."""

    hosts: Floats  # CPU time
    gpus: Floats  # kernels
    links: Floats  # collectives that leave the node; the slowest member sets the time of the collective


@dataclasses.dataclass(frozen=True)
class DrawOutcome:
    """Result of one draw."""

    step_ns: int  # from the end of the previous step to the end of this one, each on the last rank
    busiest: int  # index of the straggler: the rank with the most time outside collectives; -1 if several are equal


def window_of(trace: Trace, steady: int) -> Trace:
    """The trace of the steady step and the previous step, which fills the streams.

    Returns the whole trace if there is no previous step.
    """
    steps = trace.steps()
    if not 1 <= steady < len(steps):
        return trace
    window = slice(steps[steady - 1].start, steps[steady].stop)
    return dataclasses.replace(trace, columns={name: column[window] for name, column in trace.columns.items()})


def outcomes(
    priced: Sequence[PricedTrace], crosses: Sequence[Sequence[bool]], draws: Iterable[Factors], options: Options
) -> Iterator[DrawOutcome]:
    """Simulate each draw of a job with all ranks. The traces come from `window_of`.

    Args:
        priced: one priced trace per rank of the world, in order of ranks.
        crosses: by rank and signature, whether it is a collective that leaves the node.
        draws: factors of each rank, one `Factors` per draw.
        options: options of the engine.
    """
    program = build_program(priced, options)
    first_steps = _first_steps(program)
    sizes = np.diff(program.first)
    is_kernel = (program.columns["code"] == loop.RUN) & (program.columns["resource"] == loop.COMPUTE)
    leaves = _leaves(program, crosses)
    for draw in draws:
        drawn_columns = dict(program.columns)
        drawn_columns["host_ns"] = _times(program.columns["host_ns"], np.repeat(draw.hosts, sizes))
        of_work = np.where(is_kernel, np.repeat(draw.gpus, sizes), np.where(leaves, np.repeat(draw.links, sizes), 1.0))
        drawn_columns["duration"] = _times(program.columns["duration"], of_work)
        end = run_program(dataclasses.replace(program, columns=drawn_columns))["end"]
        yield DrawOutcome(_step_ns(program, end, first_steps), _busiest(program, drawn_columns))


def _times(values: Ints, factors: Floats) -> Ints:
    """Scaled times, rounded to ns. A factor of 1 changes nothing."""
    return np.where(factors == 1.0, values, np.rint(values * factors).astype(np.int64))


def _leaves(program: JobProgram, crosses: Sequence[Sequence[bool]]) -> NDArray[np.bool_]:
    of_ops = [
        np.array([*leaves, False])[rank.trace.columns["signature"].astype(np.int64)[rank.entries]]
        for rank, leaves in zip(program.ranks, crosses, strict=True)
    ]
    result: NDArray[np.bool_] = np.concatenate(of_ops) & (program.columns["code"] == loop.MEET)
    return result


def _first_steps(program: JobProgram) -> list[int]:
    """By rank, the first op after the first of two steps. It is the rank's first op if there is only one step."""
    first_ops = []
    for rank_index, rank in enumerate(program.ranks):
        steps = rank.trace.steps()
        stop = steps[0].stop if len(steps) == 2 else 0
        first_ops.append(int(program.first[rank_index] + np.searchsorted(rank.entries, stop)))
    return first_ops


def _step_ns(program: JobProgram, end: Ints, first_steps: Sequence[int]) -> int:
    is_device = program.columns["code"] <= loop.MEET
    device_ends = np.where(is_device, end, 0)
    previous_ends = [
        device_ends[first:stop].max(initial=0) for first, stop in zip(program.first[:-1].tolist(), first_steps)
    ]
    return int(device_ends.max(initial=0) - max(previous_ends, default=0))


def _busiest(program: JobProgram, columns: dict[str, Ints]) -> int:
    """The rank with the longest kernel or host time, which others may wait for. -1 if several ranks are equal."""
    is_run = columns["code"] == loop.RUN
    first = program.first[:-1]
    work = np.add.reduceat(np.where(is_run, columns["duration"], 0), first)
    host = np.add.reduceat(columns["host_ns"], first)
    longest = np.maximum(work, host)
    busiest_ranks = np.flatnonzero(longest == longest.max())
    return int(busiest_ranks[0]) if len(busiest_ranks) == 1 else -1
