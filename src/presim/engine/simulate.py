"""Simulates priced traces and returns their timelines: the engine's public function."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from presim.cost.price import PricedTrace
from presim.engine import loop
from presim.engine.compiled_loop import compiled_run
from presim.engine.hang import hang
from presim.engine.loop_choice import is_compiled
from presim.engine.program import OP_COLUMNS, Ints, JobProgram, build_program, initial_state, timeline
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.errors import HangError
from presim.trace.representatives import Representatives
from presim.trace.schema import Trace

_Record = TypeVar("_Record", loop.Program, loop.LoopState)


def simulate(priced: PricedTrace, *, options: Options | None = None, compiled: bool | None = None) -> Timeline:
    """Timeline of one rank. All other ranks are assumed to be as fast."""
    return simulate_job([priced], options=options, compiled=compiled)[priced.trace.manifest.rank]


def simulate_job(
    priced: Sequence[PricedTrace],
    *,
    options: Options | None = None,
    compiled: bool | None = None,
    representatives: Representatives | None = None,
) -> dict[int, Timeline]:
    """Simulate all ranks together, with their collectives as rendezvous, and return their timelines by rank.

    Args:
        priced: one priced trace per simulated rank.
        options: options of the engine.
        compiled: whether to use the compiled loop. Both loops return the same result. None: PRESIM_ENGINE decides,
            else the faster loop is used.
        representatives: which ranks represent others; by default none.

    Raises:
        HangError: ranks deadlock.
    """
    program = _without_duplicate_columns(build_program(priced, options or Options(), representatives))
    state = run_program(program, compiled=compiled)
    port_delay = np.where(state["lead"] >= 0, state["port_delay"][state["lead"]], 0)  # every member has its lead's
    columns = (*(state[name] for name in ("issue", "start", "end", "uncontended_ns")), port_delay)
    first, ranks = program.first, program.ranks
    del program, state  # frees 200 bytes an op before timelines are built
    return {
        rank.trace.manifest.rank: timeline(rank, *(column[first[index] : first[index + 1]] for column in columns))
        for index, rank in enumerate(ranks)
    }


def _without_duplicate_columns(program: JobProgram) -> JobProgram:
    """Drop the columns of ranks that the program also has: saves 64 of 300 bytes an op."""
    nothing = np.zeros(0, np.int64)
    # timelines need `code`
    emptied_columns: dict[str, Any] = {name: nothing for name in OP_COLUMNS if name != "code"}
    return dataclasses.replace(
        program, ranks=tuple(dataclasses.replace(rank, **emptied_columns) for rank in program.ranks)
    )


def run_program(program: JobProgram, *, compiled: bool | None = None) -> dict[str, Ints]:
    """The final columns of `loop.State`; ``compiled`` as in `simulate_job`.

    Raises:
        HangError: ranks deadlock.
    """
    state = initial_state(program)
    if is_compiled(compiled, len(state["issue"])):
        compiled_run()(_record(loop.Program, program.columns), _record(loop.LoopState, state))
    else:
        state = _interpret(program, state)
    _raise_if_stuck(program, state)
    return state


def _interpret(program: JobProgram, state: dict[str, Ints]) -> dict[str, Ints]:
    """Run the uncompiled loop over lists: single elements of lists are read three times as fast as of arrays."""
    lists = _record(loop.LoopState, {name: column.tolist() for name, column in state.items()})
    loop.run(_record(loop.Program, {name: column.tolist() for name, column in program.columns.items()}), lists)
    return {name: np.array(column, np.int64) for name, column in lists._asdict().items()}


def _record(type_: type[_Record], columns: Mapping[str, object]) -> _Record:
    return type_(**cast(Any, columns))


def _raise_if_stuck(program: JobProgram, state: dict[str, Ints]) -> None:
    """Raise a `HangError` if ops have no end. It names the first unfinished collective of each stream."""
    open_ops = np.flatnonzero((state["end"] < 0) & (state["issue"] >= 0) & (program.columns["code"] == loop.MEET))
    _, first = np.unique(program.columns["slot"][open_ops], return_index=True)
    if len(open_ops):
        stuck = open_ops[first]
        raise hang(_trace_entries(program, stuck), _calls_without_counterpart(program, stuck))
    for rank in program.ranks:  # such as communicators that are created in different orders
        if rank.trace.manifest.deadlock:
            raise HangError(rank.trace.manifest.deadlock)


def _calls_without_counterpart(program: JobProgram, stuck: Ints) -> list[tuple[Trace, int, Trace]]:
    """Stuck ops that wait for a rank without a matching call, each with that rank's trace."""
    matching = program.matching
    traces = {rank.trace.manifest.rank: index for index, rank in enumerate(program.ranks)}
    unmatched_calls: list[tuple[Trace, int, Trace]] = []
    for (trace, entry), op in zip(_trace_entries(program, stuck), stuck.tolist(), strict=True):
        match = int(program.columns["match"][op])
        expected_ranks = matching.channels[int(matching.channel[match])].ranks if match >= 0 else ()
        missing = [traces[rank] for rank in expected_ranks if not np.any(matching.match[traces[rank]] == match)]
        unmatched_calls += [(trace, entry, program.ranks[index].trace) for index in missing[:1]]
    return unmatched_calls


def _trace_entries(program: JobProgram, ops: Ints) -> list[tuple[Trace, int]]:
    first = program.first
    ranks = np.searchsorted(first, ops, "right") - 1
    return [
        (program.ranks[rank].trace, int(program.ranks[rank].entries[op - first[rank]]))
        for rank, op in zip(ranks.tolist(), ops.tolist(), strict=True)
    ]
