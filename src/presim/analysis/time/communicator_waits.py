"""Communicators that a rank creates and connects before and in its first step, and the time it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from presim.analysis.time.steps import Step
from presim.cost.collectives.communicator_setup import SetUp, connection, creation, peer
from presim.engine.timeline import Timeline
from presim.result import Connecting
from presim.trace.schema import Group, Kind, Trace
from presim.trace.signatures import Collective
from presim.units import seconds

_PAIRS = ("send", "recv", "send_recv")


@dataclasses.dataclass(frozen=True)
class _First:
    """The first use of a communicator, or of one of its connections."""

    at_ns: int
    cost: SetUp
    is_new: bool  # the communicator itself


def find_connecting(trace: Trace, timeline: Timeline, first: Step) -> Connecting | None:
    """NCCL set-up until the end of the first step; None if no communicator has more than one rank."""
    uses = [use for use in _first_uses(trace, timeline) if use.at_ns < max(first.end_ns, 1)]
    if not uses:
        return None
    before = [use for use in uses if use.at_ns < first.start_ns]
    inside = [use for use in uses if use.at_ns >= first.start_ns]
    total = sum((use.cost for use in uses), SetUp())
    return Connecting(
        communicators=sum(use.is_new for use in uses),
        before_s=round(sum((use.cost for use in before), SetUp()).seconds, 3),
        in_first_step_s=round(sum((use.cost for use in inside), SetUp()).seconds, 3),
        low_s=round(total.low_s, 3),
        high_s=round(total.high_s, 3),
    )


def _first_uses(trace: Trace, timeline: Timeline) -> Iterator[_First]:
    """The first call of each communicator, of its kinds of collectives, and of each peer of a send or receive."""
    entries = np.flatnonzero(trace.mask(Kind.COLLECTIVE))
    indices, places = np.unique(trace.columns["signature"][entries], return_index=True)
    first = timeline.start_ns[entries[places]]  # a signature's first call: entries of one stream keep their order
    seen: set[tuple[int, str]] = set()
    for index in np.argsort(first, kind="stable").tolist():
        signature = trace.signatures[indices[index]]
        if not isinstance(signature, Collective):
            continue
        ranks, at_ns = _ranks(signature, trace.manifest.groups, trace), int(first[index])
        group_key, link_key = (signature.group, ""), (signature.group, _connection_kind(signature))
        if ranks > 1 and group_key not in seen:
            yield _First(at_ns, creation(ranks), is_new=True)
        if ranks > 1 and link_key not in seen:
            yield _First(at_ns, peer() if signature.kind in _PAIRS else connection(), is_new=False)
        seen |= {group_key, link_key}


def _ranks(signature: Collective, groups: Sequence[Group], trace: Trace) -> int:
    return groups[signature.group].size if signature.group < len(groups) else trace.manifest.world_size


def _connection_kind(signature: Collective) -> str:
    """The connections that a collective needs: rings and trees, all pairs, or one peer."""
    if signature.kind in _PAIRS:
        return f"peer {signature.peer}"
    return "pairs" if signature.kind in ("all_to_all", "gather", "scatter") or signature.routed else "rings"


def connecting_note(setup: Connecting | None) -> list[str]:
    """A note on the NCCL set-up, which only the first step includes."""
    if setup is None:
        return []
    many = "a communicator" if setup.communicators == 1 else f"{setup.communicators} communicators"
    return [
        f"NCCL creates and connects {many} at the first use: {seconds(setup.before_s)} before the first step and "
        f"{seconds(setup.in_first_step_s)} in it (together {seconds(setup.low_s)} to {seconds(setup.high_s)}). Only "
        "the set-up time and the time of the first step include this."
    ]
