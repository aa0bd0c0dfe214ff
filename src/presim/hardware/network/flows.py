"""Max-min fair sharing of links by flows over time.

Flows with equal bytes over equivalent links form one class with one rate. Classes are found by refining colours of
flows and links until they are stable, so the result equals that of every single flow. When classes start or end, only
classes that share links with them are solved again.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.hardware.network.flow_kernels import Words, fast, fill, refine
from presim.hardware.network.topology import Floats, Ints, Topology

_ROUNDS = 64  # most refinement rounds; flows that are not separated by then count as different
_SAME_MOMENT = 1e-12  # relative: ends this close to each other are one event


@dataclasses.dataclass(frozen=True)
class Flows:
    """Flows to send, one element per flow."""

    paths: Ints  # [flow, hop] links; -1 beyond the end
    bytes: Floats
    start_s: Floats
    owner: Ints  # group of flows that belong together, from 0


@dataclasses.dataclass(frozen=True)
class Shared:
    """Result of a simulation."""

    end_s: Floats  # by flow
    link_bytes: Floats  # by link
    classes: int
    events: int

    @property
    def seconds(self) -> float:
        """End of the last flow."""
        return float(self.end_s.max(initial=0.0))

    def utilisation(self, topology: Topology) -> Floats:
        """Average utilisation of each link."""
        result: Floats = self.link_bytes / (topology.bandwidth_Bps * max(self.seconds, 1e-30))
        return result


@dataclasses.dataclass(frozen=True)
class _Quotient:
    """Classes of flows on classes of links."""

    of_flow: Ints
    bytes: Floats  # by class
    start_s: Floats
    capacity: Floats  # by class of links
    link_first: Ints
    link_class: Ints
    link_count: Floats
    class_first: Ints
    class_link: Ints
    class_count: Floats


def simulate(topology: Topology, flows: Flows) -> Shared:
    """Simulate all flows, without latencies."""
    quotient = _refine_classes(topology, flows)
    end_s, events = _simulate_classes(quotient)
    used = flows.paths >= 0
    carried = np.bincount(
        flows.paths[used], np.broadcast_to(flows.bytes[:, None], flows.paths.shape)[used], minlength=topology.links
    )
    return Shared(end_s[quotient.of_flow], carried.astype(np.float64), len(quotient.bytes), events)


def busiest_seconds(topology: Topology, flows: Flows) -> float:
    """Transfer time of all traffic on the busiest link."""
    used = flows.paths >= 0
    carried = np.bincount(
        flows.paths[used], np.broadcast_to(flows.bytes[:, None], flows.paths.shape)[used], minlength=topology.links
    )
    return float((carried / topology.bandwidth_Bps).max(initial=0.0))


def _simulate_classes(q: _Quotient) -> tuple[Floats, int]:
    """(end of each class in seconds, number of events)."""
    classes = len(q.bytes)
    steps = len(q.link_class)
    solve = fast(fill, steps)
    active, rate = np.zeros(classes, np.int64), np.zeros(classes)
    remaining_bytes, end_s = q.bytes.copy(), np.zeros(classes)
    starts = np.argsort(q.start_s, kind="stable")
    waiting, now, events = 0, 0.0, 0
    while waiting < classes or active.any():
        running = np.flatnonzero(active)
        needs = remaining_bytes[running] / np.maximum(rate[running], 1e-30)
        next_end = now + float(needs.min()) if len(running) else np.inf
        next_start = float(q.start_s[starts[waiting]]) if waiting < classes else np.inf
        then = min(next_end, next_start)
        remaining_bytes[running] -= rate[running] * (then - now)
        ended = running[needs <= (then - now) * (1 + 1e-9) + _SAME_MOMENT * then]
        active[ended], remaining_bytes[ended], end_s[ended], rate[ended] = 0, 0.0, then, 0.0
        begun = waiting
        while waiting < classes and q.start_s[starts[waiting]] <= then:
            waiting += 1
        started = starts[begun:waiting]
        active[started] = 1
        now, events = then, events + 1
        changed = np.concatenate([ended, started]).astype(np.int64)
        solve(
            q.capacity,
            q.link_first,
            q.link_class,
            q.link_count,
            q.class_first,
            q.class_link,
            q.class_count,
            active,
            changed,
            rate,
        )
        instant = started[remaining_bytes[started] <= 0]
        active[instant], end_s[instant] = 0, now
    return end_s, events


def _refine_classes(topology: Topology, flows: Flows) -> _Quotient:
    """Refine colours until they are stable: then all flows of one colour have the same rate at all times."""
    paths, links = flows.paths, topology.links
    step = fast(refine, paths.size)
    flow_colour = _initial_colours(flows.bytes, flows.start_s, flows.owner.astype(np.float64))
    link_colour = _initial_colours(topology.bandwidth_Bps)
    counts = (0, 0)
    for _ in range(_ROUNDS):
        flow_sum, link_sum = np.zeros(len(paths), np.uint64), np.zeros(links, np.uint64)
        with np.errstate(over="ignore"):
            step(paths, flow_colour, link_colour, flow_sum, link_sum)
        flow_colour, link_colour = _mix_words(flow_colour, flow_sum), _mix_words(link_colour, link_sum)
        flow_kinds, link_kinds = np.unique(flow_colour), np.unique(link_colour)
        if (len(flow_kinds), len(link_kinds)) == counts:
            numbers = np.searchsorted(flow_kinds, flow_colour), np.searchsorted(link_kinds, link_colour)
            return _quotient(topology, flows, *numbers)
        counts = (len(flow_kinds), len(link_kinds))
    return _quotient(topology, flows, np.arange(len(paths)), np.arange(links))


def _initial_colours(*columns: Floats) -> Words:
    """One word per element; words are equal if all columns are equal."""
    colour = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        colour = _mix_words(colour, np.ascontiguousarray(column, np.float64).view(np.uint64))
    return colour


def _mix_words(colour: Words, words: Words) -> Words:
    """Hash words to 64 bits (splitmix64), so that sums of them identify sets."""
    with np.errstate(over="ignore"):
        mixed = colour * np.uint64(0x9E3779B97F4A7C15) + words + np.uint64(0x632BE59BD9B4E019)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: Words = mixed ^ (mixed >> np.uint64(31))
    return result


def _quotient(topology: Topology, flows: Flows, of_flow: Ints, of_link: Ints) -> _Quotient:
    """Build classes; ``of_flow``, ``of_link``: class of each flow and link."""
    some_flow = np.unique(of_flow, return_index=True)[1]
    some_link = np.unique(of_link, return_index=True)[1]
    classes, link_classes = len(some_flow), len(some_link)
    flow, hop = np.nonzero(flows.paths >= 0)
    link = flows.paths[flow, hop]
    is_some = some_link[of_link[link]] == link  # one representative link per class
    keys = of_link[link[is_some]] * classes + of_flow[flow[is_some]]
    pairs, count = np.unique(keys, return_counts=True)
    link_class, flow_class = pairs // classes, pairs % classes
    by_class = np.argsort(flow_class, kind="stable")
    return _Quotient(
        of_flow=of_flow,
        bytes=flows.bytes[some_flow].astype(np.float64),
        start_s=flows.start_s[some_flow].astype(np.float64),
        capacity=topology.bandwidth_Bps[some_link].astype(np.float64),
        link_first=np.searchsorted(link_class, np.arange(link_classes + 1)).astype(np.int64),
        link_class=flow_class.astype(np.int64),
        link_count=count.astype(np.float64),
        class_first=np.searchsorted(flow_class[by_class], np.arange(classes + 1)).astype(np.int64),
        class_link=link_class[by_class].astype(np.int64),
        class_count=count[by_class].astype(np.float64),
    )
