"""Converts the traces of a job to the loop's arrays, and the loop's result to timelines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.price import PricedTrace
from presim.engine import loop, state
from presim.engine.contention import Classes
from presim.engine.matching import Matching, match_collectives
from presim.engine.ops import RankOps, build_ops
from presim.engine.ports import port_columns
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.trace.representatives import Representatives
from presim.trace.trace_invariants import check

Ints = NDArray[np.int64]

# Columns of `RankOps` that the loop reads, and what their values index within the rank ("": they are no indices).
OP_COLUMNS = {
    "code": "", "host_ns": "", "slot": "slot", "following": "op", "duration": "", "resource": "", "target": "op",
    "joins": "", "contends": "", "flows": "",
}  # fmt: skip

# Columns of `loop.State`: the axis that gives their length, and their initial value.
STATE_COLUMNS = {
    "issue": ("op", -1), "start": ("op", -1), "end": ("op", -1), "waiter_first": ("op", -1), "match_next": ("op", -1),
    "host_op": ("rank", 0), "host_time": ("rank", 0), "host_spent": ("rank", -1), "rank_outstanding": ("rank", 0),
    "rank_last_end": ("rank", -1),
    "outstanding": ("slot", 0), "last_end": ("slot", -1), "head": ("slot", -1), "head_state": ("slot", 0),
    "in_flight": ("slot", 0), "pending": ("slot", 0), "waiter_next": ("slot", -1),
    "running": ("resource", -1), "freed": ("resource", 0), "queued": ("resource", 0),
    "to_grant": ("resource", 0), "is_to_grant": ("resource", 0),
    "uncontended_ns": ("op", 0), "lead": ("op", -1), "active_first": ("rank", -1), "active_next": ("op", -1),
    "interference": ("op", 0), "load": ("load", 0), "changed": ("rank", 0), "is_changed": ("rank", 0),
    "last_update": ("op", 0),
    "limited_by_port": ("op", 0), "port_delay": ("op", 0),
    "slowdown": ("op", 0), "work_left": ("op", 0), "since": ("op", 0), "heap_position": ("op", 0),
    "carrier": ("event", -1), "carrier_position": ("op", -1), "carries": ("op", 0), "own_code": ("op", 0),
    "cap": ("op", 0), "rate": ("op", 0), "demand": ("link", 0), "link_left": ("link", 0), "link_open": ("link", 0),
    "link_full": ("link", 0), "dirty": ("link", 0), "is_dirty": ("link", 0),
    "arrived": ("match", 0), "match_first": ("match", -1),
    "heap_time": ("event", 0), "heap_key": ("event", 0), "heap_item": ("event", 0),
    "counters": ("counter", 0), "horizon": ("one", 0),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class JobProgram:
    """The ops of all ranks in the form the loop reads."""

    ranks: tuple[RankOps, ...]
    first: Ints  # [rank] first op; one more at the end
    columns: dict[str, Ints]  # by the names of `loop.Program`
    matching: Matching


def build_program(
    priced: Sequence[PricedTrace], options: Options, representatives: Representatives | None = None
) -> JobProgram:
    """The loop's input: arrays whose indices are all valid.

    Raises:
        InputError: two traces are of the same rank, or a trace is invalid.
        HangError: ranks call different collectives.
    """
    names = [item.trace.manifest.rank for item in priced]
    if len(set(names)) != len(names):
        raise InputError(f"a job must have one trace per rank, but its traces are of ranks {names}; remove duplicates")
    for item in priced:
        check(item.trace)
    classes = Classes()
    ranks = tuple(build_ops(item, options, classes) for item in priced)
    matching = match_collectives([item.trace for item in priced], representatives)
    op_first = _offsets([len(rank.entries) for rank in ranks])
    slot_first = _offsets([len(rank.streams) for rank in ranks])
    first = {"op": op_first, "slot": slot_first}
    columns = {
        name: _shifted([getattr(rank, name) for rank in ranks], first[points_to])
        if points_to
        else _joined([getattr(rank, name) for rank in ranks])
        for name, points_to in OP_COLUMNS.items()
    }
    columns |= {
        "rank_count": np.array([len(ranks)]),
        "stride": np.array([1]),
        "rank_end": op_first[1:],
        "rank_open": np.zeros(len(ranks), np.int64),
        "slot_first_of": slot_first[:-1],
        "slot_end": slot_first[1:],
        "slot_rank": np.repeat(np.arange(len(ranks)), np.diff(slot_first)),
        "slot_first": _shifted([rank.slot_first for rank in ranks], op_first),
        "slot_priority": _joined([rank.priority for rank in ranks]),
        "match": _joined([match[rank.entries] for rank, match in zip(ranks, matching.match, strict=True)]),
        "match_needed": matching.needed,
        **classes.columns(enabled=options.contention, model=options.overlap),
        **port_columns(priced[0].ports if priced else (), names, representatives),
        "launch_latency": np.array([options.launch_latency_ns]),
        "sync_latency": np.array([options.sync_latency_ns]),
        "queue_depth": np.array([options.queue_depth]),
    }
    int_columns = {name: np.ascontiguousarray(column, np.int64) for name, column in columns.items()}
    return JobProgram(ranks, op_first, int_columns, matching)


def initial_state(program: JobProgram) -> dict[str, Ints]:
    """The initial columns of `loop.State`."""
    columns = program.columns
    sizes = state_sizes(
        ops=len(columns["code"]),
        slots=len(columns["slot_rank"]),
        matches=len(columns["match_needed"]),
        ranks=len(program.ranks),
        joins=int(columns["joins"].sum()),
        ports=len(columns["port_first"]),
        links=int(columns["island_first"][-1]),
    )
    state = {name: np.full(sizes[axis], value, np.int64) for name, (axis, value) in STATE_COLUMNS.items()}
    state["host_op"] = program.first[:-1].copy()
    state["head"] = columns["slot_first"].copy()
    return {name: state[name] for name in loop.LoopState._fields}


def state_sizes(
    *, ops: int, slots: int, matches: int, ranks: int, joins: int, ports: int, links: int
) -> dict[str, int]:
    """By axis, the length of the columns of `loop.State`."""
    # At most one READY per slot and one END per op in flight. Only ops of one launch are in flight together.
    events = 2 * slots + joins + 1
    resources = ranks * loop.EXCLUSIVE
    sizes = {"op": ops, "slot": slots, "match": matches, "rank": ranks, "resource": resources, "event": events}
    return sizes | {"load": ports * loop.WAYS, "link": links, "counter": state.COUNTERS, "one": 1}


def timeline(rank: RankOps, issue: Ints, start: Ints, end: Ints, uncontended_ns: Ints, port_delay: Ints) -> Timeline:
    """One rank's timeline from the times of its ops. Entries that are not ops get the host's time."""
    is_sync = (rank.code > loop.WAIT) & (rank.code != loop.FETCH)
    host_after_op = np.concatenate([[0], np.where(is_sync, end, issue)])  # host time after the previous op
    host_cum_after_op = np.concatenate([[0], rank.host_cum_ns[rank.entries]])
    is_op = np.zeros(len(rank.trace), np.int64)
    is_op[rank.entries] = 1
    before = np.cumsum(is_op) - is_op  # ops before each entry
    host = host_after_op[before] + rank.host_cum_ns - host_cum_after_op[before]
    times = [host.copy(), host.copy(), host]
    for by_entry, of_ops in zip(times, (issue, start, end), strict=True):
        by_entry[rank.entries] = of_ops
    slowed, by_ports = np.zeros((2, len(rank.trace)), np.int64)
    slowed[rank.entries] = np.where(rank.code <= loop.MEET, end - start - uncontended_ns, 0)
    by_ports[rank.entries] = np.minimum(port_delay, slowed[rank.entries])
    return Timeline(times[0], times[1], times[2], slowed, by_ports)


def _offsets(sizes: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def _joined(columns: list[Ints]) -> Ints:
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


def _shifted(columns: list[Ints], first: Ints) -> Ints:
    """Convert indices within a rank to indices within the job; -1 stays -1."""
    return _joined([np.where(column < 0, -1, column + first[rank]) for rank, column in enumerate(columns)])
