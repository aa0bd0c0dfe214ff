"""What makes a timeline the right one, checked entry by entry and with none of the engine's code.

The rules together leave no freedom: whatever starts must be allowed to start, and must not have been allowed to
start earlier.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from presim.cost.price import PricedTrace
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective, Copy, Gemm

DEVICE = (Kind.WORK, Kind.COLLECTIVE)
STREAM = (*DEVICE, Kind.EVENT_RECORD, Kind.STREAM_WAIT)
SYNC = (Kind.EVENT_SYNC, Kind.STREAM_SYNC, Kind.DEVICE_SYNC)


class Rules:
    """One rank's trace beside its timeline, as plain lists."""

    def __init__(self, priced: PricedTrace, timeline: Timeline, options: Options) -> None:
        self.trace: Trace = priced.trace
        self.options = options
        self.kind = [Kind(kind) for kind in self.trace.columns["kind"].tolist()]
        self.stream: list[int] = self.trace.columns["stream"].tolist()
        self.object: list[int] = self.trace.columns["object"].tolist()
        self.duration: list[int] = priced.durations_ns().tolist()
        self.issue: list[int] = timeline.issue_ns.tolist()
        self.start: list[int] = timeline.start_ns.tolist()
        self.end: list[int] = timeline.end_ns.tolist()
        self.slowed: list[int] = timeline.slowed_ns.tolist()
        self.contended = bool(priced.demands) and options.contention
        self.entries = range(len(self.trace))

    def check(self) -> None:
        self.times_are_in_order()
        self.streams_are_in_order()
        self.waits_hold()
        self.host_is_as_fast_as_it_can_be()
        self.work_starts_when_it_can()

    def times_are_in_order(self) -> None:
        assert self.issue == sorted(self.issue)
        for at in self.entries:
            assert 0 <= self.issue[at] <= self.start[at] <= self.end[at]
            if self.kind[at] is Kind.WORK:
                assert self.end[at] - self.start[at] == self.duration[at] + self.slowed[at]
                assert self.slowed[at] == 0 or self.contended

    def joins(self, at: int) -> bool:
        """Whether a send or receive is part of one launch with what stands before it on its stream."""
        before = self.before(at)
        return (
            before >= 0
            and self.object[at] != 0
            and all(
                self.kind[one] is Kind.COLLECTIVE and self.object[one] == self.object[at] and self.is_pair(one)
                for one in (before, at)
            )
        )

    def is_pair(self, at: int) -> bool:
        signature = self.trace.signatures[int(self.trace.columns["signature"][at])]
        return isinstance(signature, Collective) and signature.kind in ("send", "recv", "send_recv")

    def before(self, at: int) -> int:
        """The entry before on the same stream, or -1."""
        earlier = [
            one for one in range(at - 1, -1, -1) if self.kind[one] in STREAM and self.stream[one] == self.stream[at]
        ]
        return earlier[0] if earlier else -1

    def stream_free(self, at: int) -> int:
        """When all that stands before an entry on its stream has ended."""
        while self.joins(at):
            at = self.before(at)
        earlier = (one for one in range(at) if self.kind[one] in STREAM and self.stream[one] == self.stream[at])
        return max((self.end[one] for one in earlier), default=0)

    def ready(self, at: int) -> int:
        """When an entry stands launched at the head of its stream."""
        own = max(self.issue[at] + self.options.launch_latency_ns, self.stream_free(at))
        return max(own, self.ready(self.before(at))) if self.joins(at) else own

    def streams_are_in_order(self) -> None:
        for at in self.entries:
            if self.kind[at] in STREAM:
                assert self.start[at] >= self.ready(at)

    def recording(self, at: int) -> int:
        """The entry that a wait is for, or -1."""
        found = [
            one for one in range(at) if self.kind[one] is Kind.EVENT_RECORD and self.object[one] == self.object[at]
        ]
        return found[-1] if found else -1

    def waits_hold(self) -> None:
        for at in self.entries:
            if self.kind[at] is Kind.EVENT_RECORD:
                assert self.start[at] == self.end[at] == self.ready(at)
            if self.kind[at] is Kind.STREAM_WAIT:
                target = self.recording(at)
                assert self.start[at] == self.end[at] == max(self.ready(at), self.end[target] if target >= 0 else 0)

    def seen(self, at: int) -> int:
        """When the host can know that what it waits for is over."""
        if self.kind[at] is Kind.EVENT_SYNC:
            ends = [self.end[self.recording(at)]] if self.recording(at) >= 0 else []
        else:
            ends = [
                self.end[one]
                for one in range(at)
                if self.kind[one] in STREAM
                and (self.kind[at] is Kind.DEVICE_SYNC or self.stream[one] == self.stream[at])
            ]
        return max(ends) + self.options.sync_latency_ns if ends else 0

    def host_is_as_fast_as_it_can_be(self) -> None:
        free = 0
        for at in self.entries:
            reached = free + self.host_ns(at)
            if self.kind[at] in STREAM:
                on_stream = [
                    one for one in range(at) if self.kind[one] in STREAM and self.stream[one] == self.stream[at]
                ]
                ends = sorted(self.end[one] for one in on_stream)
                depth = self.options.queue_depth
                slot_free = ends[len(ends) - depth] if len(ends) >= depth and not self.joins(at) else 0
                free = max(reached, slot_free)
                assert self.issue[at] == free
            else:
                free = max(reached, self.seen(at)) if self.kind[at] in SYNC else reached
                assert (self.issue[at], self.start[at], self.end[at]) == (reached, reached, free)

    def host_ns(self, at: int) -> int:
        calls = self.options.calls
        overhead = {Kind.EVENT_RECORD: calls.event, Kind.STREAM_WAIT: calls.event, Kind.COLLECTIVE: calls.collective}
        if self.kind[at] is Kind.WORK:
            signature = self.trace.signatures[int(self.trace.columns["signature"][at])]
            copies = isinstance(signature, Copy) and signature.direction != "memset"
            of_work = {isinstance(signature, Gemm): calls.product, copies: calls.transfer}
            overhead[Kind.WORK] = of_work.get(True, calls.launch)
        own = round(int(self.trace.columns["host_ns"][at]) * self.options.host_factor)
        return own + overhead.get(self.kind[at], 0)

    def resource(self, at: int) -> str:
        signature = self.trace.signatures[int(self.trace.columns["signature"][at])]
        exclusive = isinstance(signature, Copy) and signature.direction in ("h2d", "d2h", "peer")
        return signature.direction if exclusive and isinstance(signature, Copy) else "compute"

    def urgency(self, at: int) -> tuple[int, int]:
        return (self.trace.manifest.stream_priorities.get(self.stream[at], 0), at)

    def work_starts_when_it_can(self) -> None:
        """A resource runs one entry at a time, is not idle while one is ready, and takes the most urgent.

        What becomes ready in the nanosecond of the choice counts too, unless it does so by work that took no time:
        that began after the choice.
        """
        work = [at for at in self.entries if self.kind[at] is Kind.WORK]
        last = 0 if all(self.duration[at] for at in work) else -1
        for at in work:
            rivals = [one for one in work if one != at and self.resource(one) == self.resource(at)]
            for one in rivals:
                assert self.end[one] <= self.start[at] or self.end[at] <= self.start[one]
                if self.ready(one) <= self.start[at] + last < self.start[one] + last:
                    assert self.urgency(at) < self.urgency(one)
            if self.start[at] > self.ready(at):
                assert self.start[at] in [self.end[one] for one in rivals]


def check_meetings(
    priced: Mapping[int, PricedTrace], timelines: Mapping[int, Timeline], options: Options
) -> list[list[tuple[int, int]]]:
    """The n-th collective of a group starts and ends at once on all simulated members, as soon as the last is ready.

    Returns the (rank, entry) of each meeting.
    """
    meetings: dict[tuple[object, ...], list[tuple[Rules, int]]] = {}
    for rank, item in priced.items():
        rules = Rules(item, timelines[rank], options)
        rules.check()
        counts: dict[tuple[object, ...], int] = {}
        for at in rules.entries:
            if rules.kind[at] is Kind.COLLECTIVE:
                key = _key(item.trace, at, set(priced))
                counts[key] = counts.get(key, 0) + 1
                meetings.setdefault((*key, counts[key]), []).append((rules, at))
    for members in meetings.values():
        start = max(rules.ready(at) for rules, at in members)
        assert {rules.start[at] for rules, at in members} == {start}
        assert len({rules.end[at] for rules, at in members}) == 1
    return [[(rules.trace.manifest.rank, at) for rules, at in members] for members in meetings.values()]


def _key(trace: Trace, at: int, simulated: set[int]) -> tuple[object, ...]:
    signature = trace.signatures[int(trace.columns["signature"][at])]
    assert isinstance(signature, Collective)
    ranks = trace.manifest.groups[signature.group].ranks if signature.group < len(trace.manifest.groups) else ()
    here = trace.manifest.rank
    if not ranks or (signature.kind in ("send", "recv") and ranks[signature.peer] not in simulated):
        return (here, at)
    if signature.kind in ("send", "recv"):
        pair = (here, ranks[signature.peer])
        return (ranks, *(pair if signature.kind == "send" else pair[::-1]))
    return (ranks,)


def busy_ns(priced: PricedTrace) -> dict[int, int]:
    """Device time of each stream."""
    stream = priced.trace.columns["stream"]
    return {index: int(priced.durations_ns()[stream == index].sum()) for index in np.unique(stream).tolist()}
