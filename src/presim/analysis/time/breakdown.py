"""Where a step's time goes on the captured rank, instant by instant.

Every instant of the step belongs to exactly one class, the first that applies:

1. compute: a compute stream runs a kernel;
2. host-bound: the compute streams are empty, their next kernel has not been issued, and the host is not waiting for the
   device;
3. exposed communication: a collective runs;
4. exposed copy: a copy or a helper kernel of another stream runs;
5. waiting: a collective could run but waits for other ranks (on a GPU, its kernel spins). Results count this as exposed
   communication and also report it separately;
6. idle: nothing runs.

Compute streams are those with matrix products, attention or convolutions, and the one with most kernel time.
"""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from presim.analysis.time.segments import Bools, Floats, Ints, Segments
from presim.analysis.time.steps import Step
from presim.analysis.time.waiting import earliest_starts
from presim.engine.timeline import Timeline
from presim.trace.schema import WAITS, Kind, Trace
from presim.trace.signatures import Attention, Convolution, Copy, Gemm, GroupedGemm, SparseProduct


class Instant(enum.IntEnum):
    """Classes of time in a step."""

    COMPUTE = 0
    HOST_BOUND = 1
    EXPOSED_COMMUNICATION = 2
    EXPOSED_COPY = 3
    IDLE = 4
    WAITING = 5


@dataclasses.dataclass(frozen=True)
class Breakdown:
    """The parts of a step in ns; ``spent_ns`` over all `Instant` adds up to the step's duration."""

    spent_ns: dict[Instant, int]
    communication_ns: int  # some collective runs, hidden or not
    copy_ns: int  # some copy between host and device or between devices runs, hidden or not
    compute_streams: tuple[int, ...]
    critical_ns: Floats  # per trace entry: its share of compute, exposed communication and exposed copy
    waiting_ns: Floats  # per trace entry: its share of waiting for other ranks
    contention_ns: float  # the part caused by contention between overlapping entries
    ports_ns: float  # the part of contention caused by other groups on the same network ports


def break_down(
    trace: Trace,
    timeline: Timeline,
    step: Step,
    *,
    launch_latency_ns: int = 0,
    repeated_interval: tuple[int, int, int] | None = None,
) -> Breakdown:
    """Assign every instant of the step to a class; see the module docstring.

    ``launch_latency_ns``: time from the launch call to the start of the kernel on an idle device.
    ``repeated_interval``: (start, end, times): this interval occurs ``times`` more.
    """
    window = _window(timeline, step)
    parts = _break_down(_part(trace, window), timeline.part(window), step, launch_latency_ns, repeated_interval)
    critical, waiting = np.zeros(len(trace)), np.zeros(len(trace))
    critical[window], waiting[window] = parts.critical_ns, parts.waiting_ns
    duration = np.maximum(timeline.end_ns - timeline.start_ns, 1)
    longer = (timeline.slowed_ns, timeline.ports_ns)
    contention, ports = (float((critical * by_ns / duration).sum()) for by_ns in longer)
    return dataclasses.replace(
        parts, critical_ns=critical, waiting_ns=waiting, contention_ns=contention, ports_ns=ports
    )


def _break_down(
    trace: Trace, timeline: Timeline, step: Step, launch_latency_ns: int, repeated_interval: tuple[int, int, int] | None
) -> Breakdown:
    """`break_down` of the entries that touch the step, without the contention fields."""
    classes = _Classes.of(trace, timeline, step)
    start, end = timeline.start_ns, timeline.end_ns
    ready = timeline.issue_ns[classes.compute] + launch_latency_ns
    blocked = trace.mask(*WAITS) & (end > start)
    device = classes.compute | classes.communication | classes.other
    turn = earliest_starts(trace, timeline, launch_latency_ns)[classes.communication]
    cuts = (start[device], end[device], ready, start[blocked], end[blocked], turn)
    segments = Segments.cut(step.start_ns, step.end_ns, *cuts, repeated_interval=repeated_interval)
    first, last = np.zeros(len(trace), np.int64), np.zeros(len(trace), np.int64)  # places of the device's work
    first[device], last[device] = segments.places(start[device]), segments.places(end[device])
    running = {name: segments.count_at(first[mask], last[mask]) > 0 for name, mask in classes.masks().items()}
    host_free = segments.count(start[blocked], end[blocked]) == 0
    waits = segments.count(turn, start[classes.communication])
    late = _host_is_late(segments, start[classes.compute], ready) & host_free
    kinds = np.select(
        [running["compute"], late, running["communication"], running["other"], waits > 0],
        [Instant.COMPUTE, Instant.HOST_BOUND, Instant.EXPOSED_COMMUNICATION, Instant.EXPOSED_COPY, Instant.WAITING],
        Instant.IDLE,
    )
    critical = np.zeros(len(trace))
    for mask, kind in classes.spent_on():
        critical[mask] = segments.shared_at(kinds == kind, first[mask], last[mask])
    waiting = np.zeros(len(trace))
    late_start = start[classes.communication]
    waiting[classes.communication] = segments.shared(kinds == Instant.WAITING, turn, late_start)
    spent_ns = {kind: segments.total(kinds == kind) for kind in Instant}
    spent_ns[Instant.HOST_BOUND] += step.added_wait_ns
    return Breakdown(
        spent_ns,
        segments.total(running["communication"]),
        segments.total(running["copy"]),
        classes.compute_streams,
        critical,
        waiting,
        0.0,
        0.0,
    )


def _window(timeline: Timeline, step: Step) -> slice:
    """The range of entries that can affect the step."""
    touching = np.flatnonzero((timeline.start_ns < step.end_ns) & (timeline.end_ns > step.start_ns))
    return slice(int(touching[0]), int(touching[-1]) + 1) if len(touching) else slice(0, len(timeline.issue_ns))


def _part(trace: Trace, window: slice) -> Trace:
    return dataclasses.replace(trace, columns={name: column[window] for name, column in trace.columns.items()})


@dataclasses.dataclass(frozen=True)
class _Classes:
    """Classes of the device work that overlaps the step's window."""

    compute: Bools  # kernels on compute streams
    communication: Bools
    other: Bools  # copies, and kernels on other streams
    copy: Bools
    compute_streams: tuple[int, ...]

    @staticmethod
    def of(trace: Trace, timeline: Timeline, step: Step) -> _Classes:
        touching = (timeline.start_ns < step.end_ns) & (timeline.end_ns > step.start_ns)
        work = trace.mask(Kind.WORK) & touching
        copy = work & _mask_of_signatures(trace, [is_transfer(signature) for signature in trace.signatures])
        kernels = work & ~copy
        arithmetic = (Gemm, GroupedGemm, SparseProduct, Attention, Convolution)
        products = kernels & _mask_of_signatures(trace, [isinstance(value, arithmetic) for value in trace.signatures])
        streams = _compute_streams(trace, kernels, products, timeline.end_ns - timeline.start_ns)
        compute = kernels & np.isin(trace.columns["stream"], np.array(streams, np.uint16))
        communication = trace.mask(Kind.COLLECTIVE) & touching
        return _Classes(compute, communication, work & ~compute, copy, streams)

    def masks(self) -> dict[str, Bools]:
        return {"compute": self.compute, "communication": self.communication, "other": self.other, "copy": self.copy}

    def spent_on(self) -> tuple[tuple[Bools, Instant], ...]:
        """The classes of work, each with the class of time that it counts as."""
        return (
            (self.compute, Instant.COMPUTE),
            (self.communication, Instant.EXPOSED_COMMUNICATION),
            (self.other, Instant.EXPOSED_COPY),
        )


def is_transfer(signature: object) -> bool:
    """Whether it copies from or to another device or the host; copies within the device are kernels."""
    return isinstance(signature, Copy) and signature.direction in ("h2d", "d2h", "peer")


def _mask_of_signatures(trace: Trace, is_selected: list[bool]) -> Bools:
    """Mask of the entries with one of the chosen signatures."""
    mask: Bools = np.array([*is_selected, False])[trace.columns["signature"].astype(np.int64)]
    return mask


def _compute_streams(trace: Trace, kernels: Bools, products: Bools, duration_ns: Ints) -> tuple[int, ...]:
    stream = trace.columns["stream"].astype(np.int64)
    if not kernels.any():
        return ()
    busiest = int(np.argmax(np.bincount(stream[kernels], weights=duration_ns[kernels])))
    return tuple(sorted({busiest, *np.unique(stream[products]).tolist()}))


def _host_is_late(segments: Segments, starts: Ints, ready: Ints) -> Bools:
    """Whether the next kernel on a compute stream was not yet issued."""
    if not len(starts):
        return np.zeros(len(segments.lengths), np.bool_)
    order = np.argsort(starts, kind="stable")
    following = np.searchsorted(starts[order], segments.bounds[:-1])
    none_follows = following == len(starts)
    next_ready = ready[order][np.minimum(following, len(starts) - 1)]
    late: Bools = ~none_follows & (segments.bounds[:-1] < next_ready)
    return late
