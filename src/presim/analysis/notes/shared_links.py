"""Which collectives slowed each other on links of a described fabric, and on which link most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.trace.collective import Collective
from presim.trace.schema import Kind
from presim.units import seconds

if TYPE_CHECKING:
    from presim.cost.overlap import Flows

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class _Calls:
    """All calls of one collective on one rank, in order."""

    name: str
    flows: Flows
    start_ns: Ints
    end_ns: Ints
    lost_ns: int


def shared_links(
    ranks: Mapping[int, PricedTrace], timelines: Mapping[int, Timeline], link_name: Callable[[int], str]
) -> list[str]:
    """Sentences on the links that collectives share; none where no network is described or no link can be crowded."""
    calls = [call for rank, priced in sorted(ranks.items()) for call in _calls(rank, priced, timelines[rank])]
    if not calls:
        return []
    links = {link for call in calls for link in call.flows.paths.links}
    begin = (
        f"Collectives at the same time share {len(links):,} link{'s' if len(links) > 1 else ''} of the fabric at flow "
        "level: max-min fair, and timed again whenever one starts or ends."
    )
    worst = max(calls, key=lambda call: call.lost_ns)
    fullest = _most_shared_link(worst, calls)
    if not worst.lost_ns or fullest is None:
        return [f"{begin} None slows another."]
    link, other = fullest
    return [
        f"{begin} The {worst.name} loses most, {seconds(worst.lost_ns / 1e9)} in all steps, above all on "
        f"{link_name(link)} to the {other.name}."
    ]


def _calls(rank: int, priced: PricedTrace, timeline: Timeline) -> list[_Calls]:
    if priced.fabric is None:
        return []
    columns, groups = priced.trace.columns, priced.trace.manifest.groups
    signature_index = np.where(priced.trace.mask(Kind.COLLECTIVE), columns["signature"].astype(np.int64), -1)
    calls = []
    for index, (signature, flows) in enumerate(zip(priced.trace.signatures, priced.fabric.flows, strict=True)):
        entries = np.flatnonzero(signature_index == index) if flows is not None else ()
        if flows is None or not len(entries) or not isinstance(signature, Collective):
            continue
        calls.append(
            _Calls(
                name=f"{signature.kind} of {groups[signature.group].name!r} on rank {rank}",
                flows=flows,
                start_ns=timeline.start_ns[entries],
                end_ns=timeline.end_ns[entries],
                lost_ns=int(timeline.ports_ns[entries].sum()),
            )
        )
    return calls


def _most_shared_link(mine: _Calls, calls: list[_Calls]) -> tuple[int, _Calls] | None:
    """The link that others fill most while these calls run, and who fills it most; None: nobody."""
    filled: dict[int, list[tuple[float, int]]] = {}
    for index, other in enumerate(calls):
        if other.flows.paths is mine.flows.paths:  # the same transfer, on another of its ranks
            continue
        common = set(mine.flows.paths.links) & set(other.flows.paths.links)
        share = _overlap_ns(mine, other) / max(int((other.end_ns - other.start_ns).sum()), 1) if common else 0.0
        for link, flows in zip(other.flows.paths.links, other.flows.paths.flows_per_Bpns):
            if share and link in common:
                filled.setdefault(link, []).append((share * flows * other.flows.bytes * len(other.start_ns), index))
    if not filled:
        return None
    link = max(sorted(filled), key=lambda link: sum(part for part, _ in filled[link]))
    return link, calls[max(filled[link], key=lambda part: (part[0], -part[1]))[1]]


def _overlap_ns(mine: _Calls, other: _Calls) -> int:
    """Time in which a call of each runs; calls of one collective follow each other."""
    spent = np.concatenate([[0], np.cumsum(other.end_ns - other.start_ns)])

    def taken_ns_until(times: Ints) -> Ints:
        """Time that the other's calls have taken by then."""
        started_count = np.searchsorted(other.start_ns, times, "right")
        last = np.maximum(started_count - 1, 0)
        running = np.minimum(times, other.end_ns[last]) - other.start_ns[last]
        return np.where(started_count > 0, spent[last] + np.maximum(running, 0), 0)

    return int((taken_ns_until(mine.end_ns) - taken_ns_until(mine.start_ns)).sum())
