"""Run some ranks again with policy values that differ by rank, to see whether collectives depend on these values.

What a device would compute from data is answered by policies (`device_values.policies`), the same on all ranks. A
program that reads such values on the host may choose by them which collectives it calls: experts without tokens are
skipped, a loop ends once a loss is small. On a cluster the values differ by rank, and so would the collectives.

Rank 0 and the last member of each of its groups run together, each with its own values. They exchange small payloads,
so that a value that the program reduces or gathers is the same again. What counts is the order of calls on each
communicator that two of them share: kind, size and root. Exchanges between two ranks and the sizes of all-to-alls may
differ.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from presim.capture.processes.launch_config import LaunchConfig, Wave
from presim.capture.processes.rank_outcome import read_trace
from presim.capture.processes.wave import run_wave
from presim.capture.ranks.rank_grid import ReplicatedWorld, exchange_closure, find_layout, message_groups
from presim.errors import CaptureError, HangError
from presim.trace.collective import MESSAGES, Collective
from presim.trace.schema import FAILED, Group, Kind, ReadBack, Trace

_MAX_RANKS = 16  # ranks that run again
_MAX_LISTED = 2  # lines in a sentence
_MAX_LISTED_RANKS = 4
_UNSIZED = ("all_to_all", "dispatch", "combine")  # sizes follow the routing, on both sides of each message


@dataclasses.dataclass(frozen=True)
class CommunicatorCall:
    """A call on a communicator."""

    kind: str
    bytes: int  # 0 where it may differ between ranks
    dtype: str
    root: int
    scope: str  # the module that calls it
    line: str

    def __str__(self) -> str:
        size = f" of {self.bytes} bytes" if self.bytes else ""
        scope = f" in {self.scope}" if self.scope else ""
        return f"{self.kind}{size}{scope}" + (f" ({self.line.rpartition('/')[2]})" if self.line else "")


class CapturedRanks(Protocol):
    """A job as `presim.trace.job.Job` has it."""

    @property
    def traces(self) -> Sequence[Trace]:
        """Those of the captured ranks, ascending."""
        ...

    @property
    def stands_for(self) -> Mapping[int, Sequence[int]]:
        """Captured rank -> the ranks that it represents."""
        ...


@dataclasses.dataclass(frozen=True)
class PolicyTrial:
    """Whether collectives depend on policy values that differ by rank."""

    dependence: str = ""  # a sentence if collectives depend on them
    notes: tuple[str, ...] = ()  # otherwise: what was tried


def deciding_reads(traces: Sequence[Trace]) -> list[ReadBack]:
    """The read-backs of values that differ between real ranks and on which the program may decide, by line."""
    if not any(trace.mask(Kind.COLLECTIVE).any() for trace in traces):
        return []
    reads = {read.line: read for trace in traces for read in trace.manifest.read_backs if read.may_decide}
    return [reads[line] for line in sorted(reads)]


def try_differing_values(
    job: CapturedRanks, steps: int | None, setting: LaunchConfig, candidates: Sequence[int] = ()
) -> PolicyTrial:
    """Run ranks of a captured job again and compare their collectives with each other.

    Nothing runs without reads that may decide. ``candidates``: the ranks to choose from; empty: all of the world.
    ``setting.limit_s`` ends the trial, with a note.
    """
    traces = job.traces
    reads = deciding_reads(traces)
    groups = [ranks for trace in traces for ranks in message_groups(trace)]
    closure = exchange_closure(groups, setting.cluster.world_size)
    layout = find_layout(closure, setting.cluster.world_size)
    if not reads or layout is None:
        return PolicyTrial()
    source = _source(reads)
    ranks = _ranks_to_run(traces, layout, candidates)
    if len(ranks) < 2:
        return PolicyTrial(notes=(f"{source} were not tried with values that differ by rank: too few ranks can run.",))
    absent = layout.stands_for(0, ranks)
    represented = {rank: absent[rank] for rank in ranks if rank in absent}
    wave = Wave(ranks, steps, frozenset(ranks), frozenset(ranks), represented, differing_values=True)
    end_s = time.monotonic() + setting.limit_s
    try:
        with run_wave(wave, dataclasses.replace(setting, simulator=None)) as captured:
            return _compare(job, {item.rank: read_trace(item, setting) for item in captured}, source)
    except HangError as error:
        return PolicyTrial(f"{_depend(source)}{error.clause}.")
    except CaptureError as error:
        reason = f"it took longer than {setting.limit_s:.0f} s" if time.monotonic() >= end_s else f"{error}"
        return PolicyTrial(notes=(f"{source} could not be tried with values that differ by rank: {reason}.",))


def _ranks_to_run(traces: Sequence[Trace], layout: ReplicatedWorld, candidates: Sequence[int]) -> tuple[int, ...]:
    """The first rank and the last member of each of its groups, each with the ranks that it exchanges messages with."""
    first = traces[0].manifest
    groups = [group.ranks for group in first.groups if first.rank in group.ranks]
    origins = layout.origins()
    ranks: dict[int, None] = {}
    for members in ([first.rank], *groups):
        allowed = [rank for rank in members if not candidates or rank in candidates]
        replica = layout.replica(int(origins[layout.number_of(allowed[-1])])) if allowed else ()
        if candidates:
            replica = tuple(rank for rank in replica if rank in candidates)
        if len({*ranks, *replica}) <= _MAX_RANKS:
            ranks |= dict.fromkeys(replica)
    return tuple(sorted(ranks))


def _compare(job: CapturedRanks, tried: Mapping[int, Trace], source: str) -> PolicyTrial:
    after = {rank: _calls(trace) for rank, trace in tried.items()}
    before = _calls_before(job, after)
    failed = {rank for rank, trace in tried.items() if trace.manifest.exit in FAILED}
    for rank, other in itertools.combinations(tried, 2):
        for communicator in after[rank].keys() & after[other].keys():
            calls, other_calls = after[rank][communicator], after[other][communicator]
            index = _first_difference(calls, other_calls, is_partial=bool(failed & {rank, other}))
            has_changed = any(
                before[member].get(communicator) != after[member][communicator] for member in (rank, other)
            )
            if index is not None and has_changed:
                return PolicyTrial(
                    f"{_depend(source)}rank {rank} makes {len(calls)} calls on {communicator} and rank {other} "
                    f"{len(other_calls)}; call {index + 1} is {_at(calls, index)} on rank {rank} and "
                    f"{_at(other_calls, index)} on rank {other}. A real run may hang or mix up data."
                )
    if failed:
        end = tried[min(failed)].manifest
        sentence = f"{source} could not be tried with values that differ by rank: rank {end.rank} failed: {end.error}."
        return PolicyTrial(notes=(sentence,))
    ran = ", ".join(map(str, tried))
    sentence = (
        f"{source} are the same on all ranks here. Ranks {ran} ran again with values that differ by rank and called "
    )
    return PolicyTrial(notes=(f"{sentence}the same collectives.",))


def _calls_before(job: CapturedRanks, ranks: Iterable[int]) -> dict[int, dict[str, list[CommunicatorCall]]]:
    """The calls of each rank with equal values: its own, or those of the rank that represents it."""
    captured = {trace.manifest.rank: _calls(trace) for trace in job.traces}
    representatives = {
        rank: captured_rank for captured_rank, ranks_like_it in job.stands_for.items() for rank in ranks_like_it
    }
    first = job.traces[0].manifest.rank
    return {rank: captured[rank if rank in captured else representatives.get(rank, first)] for rank in ranks}


def _calls(trace: Trace) -> dict[str, list[CommunicatorCall]]:
    """The calls of a rank in order, by communicator; those between two ranks are left out."""
    columns, groups = trace.columns, trace.manifest.groups
    names = _communicators(groups)
    calls: dict[str, list[CommunicatorCall]] = {name: [] for name in names}
    for entry in np.flatnonzero(trace.mask(Kind.COLLECTIVE)):
        signature = trace.signatures[int(columns["signature"][entry])]
        if (
            not isinstance(signature, Collective)
            or signature.kind in MESSAGES
            or not 0 <= signature.group < len(groups)
        ):
            continue
        scope, site = int(columns["scope"][entry]), int(columns["site"][entry])
        calls[names[signature.group]].append(
            CommunicatorCall(
                signature.kind,
                0 if signature.kind in _UNSIZED else signature.bytes,
                signature.dtype,
                signature.peer,
                trace.scopes[scope] if scope >= 0 else "",
                trace.sites[site] if site >= 0 else "",
            )
        )
    return calls


def _communicators(groups: Sequence[Group]) -> list[str]:
    """A name for each group that is the same on all of its members: the first, second … group of these ranks."""
    names: list[str] = []
    counts: Counter[tuple[int, ...]] = Counter()
    for group in groups:
        counts[group.ranks] += 1
        number = f", group {counts[group.ranks]} of these" if counts[group.ranks] > 1 else ""
        name = "a group" if group.name.startswith("group ") else repr(group.name)
        names.append(f"{name} (ranks {_format_ranks(group.ranks)}{number})")
    return names


def _format_ranks(ranks: Sequence[int]) -> str:
    numbers = [*map(str, ranks)]
    return ", ".join(numbers if len(numbers) <= _MAX_LISTED_RANKS else [*numbers[:2], "…", numbers[-1]])


def _first_difference(
    calls: Sequence[CommunicatorCall], other_calls: Sequence[CommunicatorCall], *, is_partial: bool
) -> int | None:
    """The index of the first call that differs. ``is_partial``: a rank has failed, so its calls end early."""
    for index, (call, other) in enumerate(zip(calls, other_calls)):
        if call != other:
            return index
    return None if is_partial or len(calls) == len(other_calls) else min(len(calls), len(other_calls))


def _at(calls: Sequence[CommunicatorCall], index: int) -> str:
    return str(calls[index]) if index < len(calls) else "missing"


def _depend(source: str) -> str:
    return f"Collectives depend on {source[0].lower()}{source[1:]}: with values that differ by rank, "


def _source(reads: Sequence[ReadBack]) -> str:
    """Names the policies and lines, as the beginning of a sentence."""
    policies = " and ".join(dict.fromkeys(read.answer for read in reads))
    lines = [read.line.rpartition("/")[2] for read in reads if ":" in read.line] or [reads[0].line]
    unlisted = f" and {len(lines) - _MAX_LISTED} more" if len(lines) > _MAX_LISTED else ""
    return f"Values of the {policies} policy that the program reads ({', '.join(lines[:_MAX_LISTED])}{unlisted})"
