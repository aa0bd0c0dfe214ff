"""Simulates priced traces and returns their timelines: the engine's public function."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from presim.cost.price import PricedTrace
from presim.engine import loop
from presim.engine.compiled import compiled_run
from presim.engine.hang import hang
from presim.engine.options import Options
from presim.engine.program import OP_COLUMNS, Ints, JobProgram, build_program, initial_state, timeline
from presim.engine.timeline import Timeline
from presim.trace.representatives import Representatives
from presim.trace.schema import Trace

# What it takes to import numba and load the cached loop, counted in interpreted ops: a process interprets until it
# has spent as much, so it never takes more than twice what the better choice would have. docs/decisions/engine-loop.md
LOADING_OPS = 100_000
_Record = TypeVar("_Record", loop.Program, loop.State)
_SWITCH = "PRESIM_ENGINE"  # compiled or interpreted, with the same result


def simulate(priced: PricedTrace, *, options: Options | None = None, compiled: bool | None = None) -> Timeline:
    """Timeline of one rank; missing ranks are assumed to be as fast as this one."""
    return simulate_job([priced], options=options, compiled=compiled)[priced.trace.manifest.rank]


def simulate_job(
    priced: Sequence[PricedTrace],
    *,
    options: Options | None = None,
    compiled: bool | None = None,
    representatives: Representatives | None = None,
) -> dict[int, Timeline]:
    """Timelines by rank of all ranks together, with their collectives as rendezvous.

    ``representatives`` says which of them stand for others; nobody, unless given. ``compiled`` chooses between the
    compiled and the interpreted loop, which answer alike; None: whichever is sooner done, or what the environment's
    PRESIM_ENGINE says. Raises `HangError` where ranks wait for each other for ever.
    """
    program = _once(build_program(priced, options or Options(), representatives))
    state = run_program(program, compiled=compiled)
    crowded = np.where(state["lead"] >= 0, state["crowded"][state["lead"]], 0)  # of each of those that met
    columns = (*(state[name] for name in ("issue", "start", "end", "alone")), crowded)
    first, ranks = program.first, program.ranks
    del program, state  # 200 bytes an op, while timelines are made
    return {
        rank.trace.manifest.rank: timeline(rank, *(column[first[index] : first[index + 1]] for column in columns))
        for index, rank in enumerate(ranks)
    }


def _once(program: JobProgram) -> JobProgram:
    """Without the columns of ranks that the program has as well: 64 of 300 bytes an op."""
    nothing = np.zeros(0, np.int64)
    left_out: dict[str, Any] = {name: nothing for name in OP_COLUMNS if name != "code"}  # timelines need that one
    return dataclasses.replace(program, ranks=tuple(dataclasses.replace(rank, **left_out) for rank in program.ranks))


def run_program(program: JobProgram, *, compiled: bool | None = None) -> dict[str, Ints]:
    """The columns of `loop.State` once all has happened; ``compiled`` as in `simulate_job`.

    Raises:
        HangError: ranks wait for each other for ever.
    """
    state = initial_state(program)
    if _is_compiled(compiled, len(state["issue"])):
        compiled_run()(_record(loop.Program, program.columns), _record(loop.State, state))
    else:
        state = _interpret(program, state)
    _raise_if_stuck(program, state)
    return state


class _Rent:
    """Number of ops that this process has interpreted; it decides which loop runs."""

    ops = 0


def _is_compiled(choice: bool | None, ops: int) -> bool:
    if choice is not None:
        return choice
    switch = os.environ.get(_SWITCH, "")
    if switch:
        return switch == "compiled"
    _Rent.ops += ops
    return _Rent.ops >= LOADING_OPS


def _interpret(program: JobProgram, state: dict[str, Ints]) -> dict[str, Ints]:
    """Lists of Python's integers are read three times as fast as numpy arrays, one element at a time."""
    lists = _record(loop.State, {name: column.tolist() for name, column in state.items()})
    loop.run(_record(loop.Program, {name: column.tolist() for name, column in program.columns.items()}), lists)
    return {name: np.array(column, np.int64) for name, column in lists._asdict().items()}


def _record(type_: type[_Record], columns: Mapping[str, object]) -> _Record:
    return type_(**cast(Any, columns))


def _raise_if_stuck(program: JobProgram, state: dict[str, Ints]) -> None:
    """Ops without an end are in a deadlock: name the collectives that some stream stands at."""
    open_ops = np.flatnonzero((state["end"] < 0) & (state["issue"] >= 0) & (program.columns["code"] == loop.MEET))
    _, first = np.unique(program.columns["slot"][open_ops], return_index=True)
    if len(open_ops):
        stuck = open_ops[first]
        raise hang(_located(program, stuck), _absent(program, stuck))


def _absent(program: JobProgram, stuck: Ints) -> list[tuple[Trace, int, Trace]]:
    """Those of the stuck ops that wait for a rank which has no such call, each with that rank's trace."""
    matching = program.matching
    traces = {rank.trace.manifest.rank: index for index, rank in enumerate(program.ranks)}
    found: list[tuple[Trace, int, Trace]] = []
    for (trace, entry), op in zip(_located(program, stuck), stuck.tolist(), strict=True):
        match = int(program.columns["match"][op])
        wanted = matching.channels[int(matching.channel[match])].ranks if match >= 0 else ()
        missing = [traces[rank] for rank in wanted if not np.any(matching.match[traces[rank]] == match)]
        found += [(trace, entry, program.ranks[index].trace) for index in missing[:1]]
    return found


def _located(program: JobProgram, ops: Ints) -> list[tuple[Trace, int]]:
    first = program.first
    ranks = np.searchsorted(first, ops, "right") - 1
    return [
        (program.ranks[rank].trace, int(program.ranks[rank].entries[op - first[rank]]))
        for rank, op in zip(ranks.tolist(), ops.tolist(), strict=True)
    ]
