"""Every rank of a job simulated by itself, several times over: what differs between draws are factors of times.

The job is built once. A draw multiplies CPU time, kernels and collectives of each rank, and runs the same loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.price import PricedTrace
from presim.engine import loop
from presim.engine.options import Options
from presim.engine.program import JobProgram, build_program
from presim.engine.simulate import run_program
from presim.trace.schema import Trace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Factors:
    """What the times of each rank [rank] are multiplied with."""

    hosts: Floats  # CPU time
    gpus: Floats  # kernels
    links: Floats  # collectives that leave the node; the slowest member sets the time of all


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One draw."""

    step_ns: int  # from the end of the step before, on the last rank, to its own end on the last rank
    busiest: int  # place of the rank with the most time beside collectives, which others wait for; -1: several


def window_of(trace: Trace, steady: int) -> Trace:
    """The trace of a step and the one before it, which fills the streams; the whole trace where there is none."""
    steps = trace.steps()
    if not 1 <= steady < len(steps):
        return trace
    kept = slice(steps[steady - 1].start, steps[steady].stop)
    return dataclasses.replace(trace, columns={name: column[kept] for name, column in trace.columns.items()})


def outcomes(
    priced: Sequence[PricedTrace], crosses: Sequence[Sequence[bool]], draws: Iterable[Factors], options: Options
) -> Iterator[Outcome]:
    """What each draw makes of a job of all ranks, whose traces are those of `window_of`.

    Args:
        priced: one for each rank of the world, in order.
        crosses: by rank and signature, whether it is a collective that leaves the node.
        draws: factors of each rank.
        options: those of the engine.
    """
    program = build_program(priced, options)
    first_steps = _first_steps(program)
    sizes = np.diff(program.first)
    is_kernel = (program.columns["code"] == loop.RUN) & (program.columns["resource"] == loop.COMPUTE)
    leaves = _leaves(program, crosses)
    for draw in draws:
        changed = dict(program.columns)
        changed["host_ns"] = _times(program.columns["host_ns"], np.repeat(draw.hosts, sizes))
        of_work = np.where(is_kernel, np.repeat(draw.gpus, sizes), np.where(leaves, np.repeat(draw.links, sizes), 1.0))
        changed["duration"] = _times(program.columns["duration"], of_work)
        end = run_program(dataclasses.replace(program, columns=changed))["end"]
        yield Outcome(_step_ns(program, end, first_steps), _busiest(program, changed))


def _times(values: Ints, factors: Floats) -> Ints:
    """Rounded to ns; a factor of 1 changes nothing."""
    return np.where(factors == 1.0, values, np.rint(values * factors).astype(np.int64))


def _leaves(program: JobProgram, crosses: Sequence[Sequence[bool]]) -> NDArray[np.bool_]:
    of_ops = [
        np.array([*leaves, False])[rank.trace.columns["signature"].astype(np.int64)[rank.entries]]
        for rank, leaves in zip(program.ranks, crosses, strict=True)
    ]
    return np.concatenate(of_ops) & (program.columns["code"] == loop.MEET)


def _first_steps(program: JobProgram) -> list[int]:
    """By rank, the first op after its first step; its first op of all where it has one step."""
    found = []
    for at, rank in enumerate(program.ranks):
        steps = rank.trace.steps()
        stop = steps[0].stop if len(steps) == 2 else 0
        found.append(int(program.first[at] + np.searchsorted(rank.entries, stop)))
    return found


def _step_ns(program: JobProgram, end: Ints, first_steps: Sequence[int]) -> int:
    is_device = program.columns["code"] <= loop.MEET
    ends = np.where(is_device, end, 0)
    before = [ends[first:stop].max(initial=0) for first, stop in zip(program.first[:-1].tolist(), first_steps)]
    return int(ends.max(initial=0) - max(before, default=0))


def _busiest(program: JobProgram, columns: dict[str, Ints]) -> int:
    """Whose kernels or whose host take longest: either may be what the others wait for; -1: several ranks'."""
    is_run = columns["code"] == loop.RUN
    first = program.first[:-1]
    work = np.add.reduceat(np.where(is_run, columns["duration"], 0), first)
    host = np.add.reduceat(columns["host_ns"], first)
    longest = np.maximum(work, host)
    most = np.flatnonzero(longest == longest.max())
    return int(most[0]) if len(most) == 1 else -1
