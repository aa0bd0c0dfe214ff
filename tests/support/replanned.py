"""What must hold of a trace with more micro-batches, whatever program it was captured from."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np

from presim.composition.replan.cycles import program_calls
from presim.composition.replan.object_names import DEFINES, REFERS, definitions
from presim.trace.schema import BUCKETS, COLUMNS, Kind, Trace, fetch_worker
from presim.trace.trace_invariants import check

_OPERATOR = 5  # column of `calls`
_VARYING = (Kind.HOST_WAIT, Kind.FETCH, Kind.ALLOC)  # values are times, or depend on what the allocator splits


def broken_rules(captured: Trace, extended: Trace) -> list[str]:
    """Rules that the extension of a captured trace breaks, as sentences; none if all hold."""
    check(extended)
    before = faults(captured)
    rules = [f"{count} {what}" for what, count in faults(extended).items() if count > before.get(what, 0)]
    if len(extended.steps()) != len(captured.steps()):
        rules.append("the number of steps differs")
    facts = extended.manifest.step
    ends = [phase.end for phase in facts.phases]
    if ends != sorted(ends) or any(end > len(extended) for end in ends):
        rules.append("phases of steps are out of order")
    for phase, later in zip(captured.manifest.step.phases, facts.phases):
        if not np.array_equal(_content_at(captured, phase.end - 1), _content_at(extended, later.end - 1)):
            rules.append(f"the {phase.kind} of step {phase.step} ends with another entry")
    return rules


def faults(trace: Trace) -> dict[str, int]:
    """Counts of entries that contradict earlier ones, by what is wrong with them."""
    counts: collections.Counter[str] = collections.Counter()
    live: dict[int, int] = {}
    names: dict[str, set[int]] = {what: set() for what in DEFINES.values()}
    columns = [trace.columns[name].tolist() for name in ("kind", "object", "value")]
    for kind, number, value in zip(*columns):
        if kind == Kind.ALLOC:
            counts["blocks allocated at the address of a live one"] += number in live
            live[number] = value
        elif kind == Kind.FREE:
            counts["frees of no live block"] += number not in live
            counts["frees of another size"] += live.pop(number, value) != value
        elif kind == Kind.RETAG:
            counts["tags of no live block"] += number not in live
        elif kind in REFERS:
            counts[f"references to no {REFERS[kind]}"] += number not in names[REFERS[kind]]
        if kind in (Kind.EVENT_RECORD, Kind.FETCH):
            counts[f"{DEFINES[kind]}s of a number in use"] += number in names[DEFINES[kind]]
        if kind in DEFINES:
            names[DEFINES[kind]].add(number)
    counts["entries after which more is allocated than reserved"] = _excess_entries(trace)
    return {what: count for what, count in counts.items() if count}


def _excess_entries(trace: Trace) -> int:
    """Entries after which the blocks take more than the segments, in a trace that has segments."""
    sizes = trace.columns["value"].astype(np.int64)
    if not trace.mask(Kind.SEGMENT_ALLOC).any():
        return 0
    gains, losses = trace.mask(Kind.SEGMENT_ALLOC, Kind.FREE), trace.mask(Kind.SEGMENT_FREE, Kind.ALLOC)
    return int(np.sum(np.cumsum(np.where(gains, sizes, 0) - np.where(losses, sizes, 0)) < 0))


def live_blocks(trace: Trace) -> list[collections.Counter[int]]:
    """At the end of each step, how many live blocks there are of each size.

    Buckets are left out: DDP replaces its first ones, and when the allocator notices differs between captures.
    """
    live: dict[int, int] = {}
    ends = []
    buckets = trace.scopes.index(BUCKETS) if BUCKETS in trace.scopes else -2
    columns = [trace.columns[name].tolist() for name in ("kind", "object", "value", "scope")]
    for kind, number, size, scope in zip(*columns):
        if kind == Kind.ALLOC and scope != buckets:
            live[number] = size
        elif kind == Kind.FREE:
            live.pop(number, None)
        elif kind == Kind.STEP:
            ends.append(collections.Counter(live.values()))
    return ends


def _content_at(trace: Trace, entry: int) -> list[int]:
    return [int(trace.columns[name][entry]) for name in COLUMNS if name not in ("object", "value", "host_ns")]


def calls(trace: Trace, step: int) -> list[tuple[Any, ...]]:
    """What the program asks for in a step, with what it refers to as the distance in such calls; times left out.

    Equal for two traces of the same program whatever numbers their objects have.
    """
    defined_at = definitions(trace)
    program_s = program_calls(trace, defined_at)
    rank_of_call = np.cumsum(np.isin(np.arange(len(trace)), program_s))
    columns = trace.columns
    part = trace.steps()[step]
    rows = []
    for entry in program_s[(program_s >= part.start) & (program_s < part.stop)].tolist():
        kind = Kind(int(columns["kind"][entry]))
        signature = int(columns["signature"][entry])
        content = repr(trace.signatures[signature]) if signature >= 0 else ""
        scope, operator, site = (int(columns[name][entry]) for name in ("scope", "operator", "site"))
        distance = int(rank_of_call[entry] - rank_of_call[defined_at[entry]]) if defined_at[entry] >= 0 else -1
        worker = int(fetch_worker(int(columns["object"][entry]))) if kind is Kind.FETCH else 0
        value = 0 if kind in _VARYING else int(columns["value"][entry])
        rows.append(
            (
                kind.name,
                int(columns["phase"][entry]),
                int(columns["stream"][entry]),
                content,
                trace.scopes[scope] if scope >= 0 else "",
                trace.operators[operator] if operator >= 0 else "",
                trace.sites[site] if site >= 0 else "",
                value,
                worker,
                distance,
            )
        )
    return rows


def calls_that_differ(trace: Trace, other: Trace, step: int) -> dict[str, int]:
    """By operator, the calls of a step that one of two traces has more of, or that differ in what they refer to."""
    rows, other_rows = calls(trace, step), calls(other, step)
    counts, other_counts = (collections.Counter(row[:-1] for row in own_rows) for own_rows in (rows, other_rows))
    surplus = (counts - other_counts) + (other_counts - counts)
    by_operator: collections.Counter[str] = collections.Counter()
    for row, count in surplus.items():
        by_operator[row[_OPERATOR] or row[0]] += count
    if not surplus:
        by_operator.update(row[_OPERATOR] or row[0] for row, twin in zip(rows, other_rows) if row != twin)
    return dict(by_operator)
