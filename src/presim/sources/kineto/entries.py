"""Rebuild a rank's trace entries from profiled steps, in host order.

* Device work belongs to the call with its correlation id. It starts when its launch has reached the device, earlier
  work on its stream has ended, and everything its stream waits for has ended. Any further pause counts as work.
* Waits between streams are those recorded by the profiler (``enable_cuda_sync_events``). Without them, waits are
  inferred from times: work that starts right after work of another stream ends, and not at its own launch, waited for
  it. With them, kernels that overtake those of another stream show its priority.
* Host time is the time between calls, without waits in synchronisations or for space in a full queue.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from presim.engine.simulation_options import Options
from presim.sources.kineto.events import Event, Profile
from presim.sources.kineto.kernel_signatures import Reader
from presim.sources.kineto.overtaking import QueuedKernel, stream_priorities
from presim.sources.kineto.profile_steps import Window, events_within
from presim.sources.kineto.profiled_collectives import Groups, is_nccl
from presim.trace.schema import Kind, Phase
from presim.trace.signatures import Signature

_LATENCY_NS = Options().launch_latency_ns
_SYNC_NS = Options().sync_latency_ns
_QUEUED_NS = 3_000  # device-side gap between two kernels of one stream if the second was already queued
# work that starts within this time after another stream's work ended is assumed to have waited for it
_RIGHT_AFTER_NS = 15_000
_MOST_LATENCY_NS = 20_000  # a larger value means that all work was queued and no launch found its stream idle
_FULL_QUEUE = 512  # pending launches above which the host may block
_SYNCS = {
    "cudaDeviceSynchronize": Kind.DEVICE_SYNC,
    "cudaStreamSynchronize": Kind.STREAM_SYNC,
    "cudaEventSynchronize": Kind.EVENT_SYNC,
    "hipDeviceSynchronize": Kind.DEVICE_SYNC,
    "hipStreamSynchronize": Kind.STREAM_SYNC,
    "hipEventSynchronize": Kind.EVENT_SYNC,
}


@dataclasses.dataclass
class Entry:
    """One entry of the rebuilt trace."""

    kind: Kind
    stream: int = 0
    host_ns: int = 0
    serial: int = 0  # number of an event recording; for messages: number of the shared launch
    signature: Signature | None = None
    duration_ns: int = 0  # device work alone
    pause_ns: int = 0  # unexplained pause before it
    operator: str = ""
    phase: Phase = Phase.OTHER
    replayed: bool = False
    event: Event | None = None


@dataclasses.dataclass(frozen=True)
class ProfiledSteps:
    """All entries of some steps; an entry marks the end of each."""

    entries: list[Entry]
    unexplained_ns: int  # pauses on streams without an explanation in the profile
    inferred: int  # number of waits between streams inferred from times
    nameless: int  # number of NCCL kernels without a size or a group
    priorities: Mapping[int, int] = dataclasses.field(default_factory=dict)  # of streams that overtake others


def rebuild_entries(profile: Profile, window: Window, groups: Groups) -> ProfiledSteps:
    """Rebuild the entries of the selected steps."""
    return _Walk(profile, window, groups).steps()


class _Walk:
    """Processes the calls of the steps in order, tracking the state of streams and host."""

    def __init__(self, profile: Profile, window: Window, groups: Groups) -> None:
        self._profile, self._window, self._groups = profile, window, groups
        self._works: dict[int, list[Event]] = defaultdict(list)
        for event in profile.work:
            self._works[event.number("correlation")].append(event)
        self._calls = events_within(profile.calls, window)
        self._syncs = {event.number("correlation"): event for event in profile.syncs}
        self._recorded_on = {
            sync.number("wait_on_cuda_event_record_corr_id"): sync.number("wait_on_stream") for sync in profile.syncs
        }
        self._reader = Reader(profile, self._kernels_by_operator())
        self._latency_ns = self._usual_latency()
        self._last_end: dict[int, int] = {}  # stream -> end of its last work
        self._initialise_streams()
        self._awaited: dict[int, int] = {}  # stream -> end of the work that its next work waits for
        self._entries: list[Entry] = []
        self._placed: list[tuple[int, int, int, Entry]] = []  # end, number, stream, entry of all work so far, by end
        self._records: dict[
            int, tuple[int, int]
        ] = {}  # correlation id of a recording -> (its number, end of the recorded work)
        self._kernels: list[QueuedKernel] = []
        self._serials = 0
        self._cursor, self._late = window.start_ns, 0
        self._unexplained = self._inferred = self._nameless = 0
        self._streams = self._dense_streams()
        self._starts = sorted(event.start_ns for event in profile.work)

    def steps(self) -> ProfiledSteps:
        step_ends_ns = list(self._window.ends_ns)
        for call in self._calls:
            while call.start_ns >= step_ends_ns[0]:
                self._end_step(step_ends_ns.pop(0))
            correlation = call.number("correlation")
            if works := self._works.get(correlation):
                self._launch(call, works)
            elif correlation in self._recorded_on and correlation >= 0:
                self._record(call, correlation)
            elif "StreamWaitEvent" in call.name:
                self._wait(call, correlation)
            elif (kind := _SYNCS.get(call.name)) is not None:
                self._synchronise(call, kind, correlation)
        for end in step_ends_ns:
            self._end_step(end)
        priorities = stream_priorities(self._kernels) if self._profile.syncs else {}
        return ProfiledSteps(self._entries, self._unexplained, self._inferred, self._nameless, priorities)

    def _end_step(self, at_ns: int) -> None:
        """Mark the end of a step, including host time until then."""
        host = self._take_host_ns(at_ns)
        self._cursor = max(self._cursor, at_ns)
        self._add(Entry(Kind.STEP, 0, host))

    # Set-up

    def _kernels_by_operator(self) -> Counter[int]:
        kernel_counts: Counter[int] = Counter()
        for call in self._calls:
            for event in self._works.get(call.number("correlation"), ()):
                kernel_counts[event.number("External id")] += 1
        return kernel_counts

    def _usual_latency(self) -> int:
        """Typical time from a launch to the start of its work on an idle stream."""
        latencies_ns = sorted(
            works[0].start_ns - call.start_ns
            for call in self._calls
            if (works := self._works.get(call.number("correlation"))) and works[0].start_ns >= call.start_ns
        )
        shortest_ns = latencies_ns[len(latencies_ns) // 100] if latencies_ns else _LATENCY_NS
        return shortest_ns if shortest_ns <= _MOST_LATENCY_NS else _LATENCY_NS

    def _initialise_streams(self) -> None:
        """Initialise the state of streams at the start of the steps."""
        for call in self._profile.calls:
            if call.start_ns >= self._window.start_ns:
                break
            for event in self._works.get(call.number("correlation"), ()):
                stream = _stream(event)
                self._last_end[stream] = max(self._last_end.get(stream, 0), event.end_ns)

    def _dense_streams(self) -> dict[int, int]:
        """Map profile streams to dense numbers: the stream with most kernel time becomes 0."""
        busy: Counter[int] = Counter()
        for event in self._profile.work:
            busy[_stream(event)] += 0 if is_nccl(event) else event.end_ns - event.start_ns
        ordered = sorted(busy, key=lambda stream: (-busy[stream], stream))
        return {stream: number for number, stream in enumerate(ordered)}

    # Calls

    def _take_host_ns(self, start_ns: int) -> int:
        spent, self._late = max(0, start_ns - self._cursor) + self._late, 0
        return spent

    def _launch(self, call: Event, works: Sequence[Event]) -> None:
        host = self._take_host_ns(call.start_ns)
        graph = "Graph" in call.name
        for index, event in enumerate(works):
            self._place_work(event, call, 0 if index else host, replayed=graph or index > 0)
        self._cursor = max(self._cursor, call.start_ns)
        last = works[-1]
        if last.cat.lower() == "gpu_memcpy" and "DtoH" in last.name and last.end_ns <= call.end_ns > call.start_ns:
            # copies from or to pageable memory synchronise
            self._add(Entry(Kind.STREAM_SYNC, self._streams[_stream(last)]))
            self._resume_host(call, last.end_ns)
        elif call.end_ns - call.start_ns > 20_000 and self._count_pending(call.start_ns) >= _FULL_QUEUE:
            self._cursor = call.end_ns - _LATENCY_NS

    def _count_pending(self, now_ns: int) -> int:
        """Number of launches that have not started by ``now_ns``."""
        launched = bisect.bisect_right(self._starts, now_ns)
        return len(self._placed) - max(0, launched - bisect.bisect_right(self._starts, self._window.start_ns))

    def _place_work(self, event: Event, call: Event, host_ns: int, *, replayed: bool) -> None:
        stream = _stream(event)
        before = self._last_end.get(stream, 0)
        ready = max(before, self._awaited.pop(stream, 0), call.start_ns + self._latency_ns)
        pause = event.start_ns - ready
        if pause > _QUEUED_NS and (source := self._ends_right_before(event, stream, ready)) is not None:
            self._infer_wait(source, stream)
            pause = event.start_ns - source[0]
        pause = max(0, pause)
        self._unexplained += pause if pause > _RIGHT_AFTER_NS else 0
        entry = Entry(
            Kind.WORK, self._streams[stream], host_ns, signature=self._signature(event),
            duration_ns=max(1, event.end_ns - event.start_ns), pause_ns=pause, operator=self._reader.name(event),
            phase=self._phase(event, call), replayed=replayed, event=event,
            serial=max(0, event.number("presim launch", 0)),
        )  # fmt: skip
        self._add(entry)
        if event.cat.lower() == "kernel" and not is_nccl(event):
            self._kernels.append(QueuedKernel(entry.stream, ready, event.start_ns, event.end_ns))
        self._last_end[stream] = max(before, event.end_ns)
        bisect.insort(self._placed, (event.end_ns, len(self._placed), stream, entry))

    def _signature(self, event: Event) -> Signature:
        if is_nccl(event):
            call = self._profile.operators.get(event.number("External id"))
            if (collective := self._groups.collective(event, call)) is not None:
                return collective
            self._nameless += 1
        return self._reader.signature(event)

    def _phase(self, event: Event, call: Event) -> Phase:
        recorded = event.args.get("presim phase")
        if isinstance(recorded, int) and 0 <= recorded < len(Phase):
            return Phase(recorded)
        if any(update.start_ns <= call.start_ns < update.end_ns for update in self._profile.updates):
            return Phase.OPTIMIZER
        name = self._reader.name(event).lower()
        return Phase.BACKWARD if call.tid != self._window.tid or "backward" in name else Phase.FORWARD

    def _ends_right_before(self, event: Event, stream: int, ready_ns: int) -> tuple[int, Entry] | None:
        """The latest-ending earlier-launched work of another stream before this work started."""
        later_index = bisect.bisect_right(self._placed, event.start_ns, key=lambda placed: placed[0])
        for end, _, other, entry in reversed(self._placed[:later_index]):
            if end < max(event.start_ns - _RIGHT_AFTER_NS, ready_ns):
                return None
            if other != stream:
                return end, entry
        return None

    def _infer_wait(self, source: tuple[int, Entry], stream: int) -> None:
        """Record an event right after the source, and make the stream wait for it."""
        self._serials += 1
        self._inferred += 1
        source_index = next(
            index for index in range(len(self._entries) - 1, -1, -1) if self._entries[index] is source[1]
        )
        self._entries.insert(source_index + 1, Entry(Kind.EVENT_RECORD, source[1].stream, serial=self._serials))
        self._add(Entry(Kind.STREAM_WAIT, self._streams[stream], serial=self._serials))

    def _record(self, call: Event, correlation: int) -> None:
        stream = self._recorded_on.get(correlation, -1)
        if stream not in self._streams:
            return
        self._serials += 1
        self._records[correlation] = self._serials, self._last_end.get(stream, 0)
        host = self._take_host_ns(call.start_ns)
        self._cursor = max(self._cursor, call.start_ns)
        self._add(Entry(Kind.EVENT_RECORD, self._streams[stream], host, self._serials))

    def _wait(self, call: Event, correlation: int) -> None:
        sync = self._syncs.get(correlation)
        if sync is None:
            return
        record = self._records.get(sync.number("wait_on_cuda_event_record_corr_id"))
        stream = sync.number("stream")
        if record is None or stream not in self._streams:
            return
        self._awaited[stream] = max(self._awaited.get(stream, 0), record[1])
        host = self._take_host_ns(call.start_ns)
        self._cursor = max(self._cursor, call.start_ns)
        self._add(Entry(Kind.STREAM_WAIT, self._streams[stream], host, record[0]))

    def _synchronise(self, call: Event, kind: Kind, correlation: int) -> None:
        sync = self._syncs.get(correlation)
        record = self._records.get(sync.number("wait_on_cuda_event_record_corr_id")) if sync is not None else None
        ended = [(end, stream) for stream, end in self._last_end.items() if end <= call.end_ns]
        host = self._take_host_ns(call.start_ns)
        if kind == Kind.EVENT_SYNC and record is not None:
            self._add(Entry(Kind.EVENT_SYNC, 0, host, record[0]))
            self._resume_host(call, record[1])
            return
        waited_stream = sync.number("stream") if sync is not None else -1
        if kind != Kind.DEVICE_SYNC and waited_stream in self._streams:
            ended = [(self._last_end.get(waited_stream, 0), waited_stream)]
        end, stream = max(ended, default=(0, -1))
        if kind == Kind.DEVICE_SYNC:
            self._add(Entry(kind, 0, host))
        elif stream in self._streams:
            self._add(Entry(Kind.STREAM_SYNC, self._streams[stream], host))
        else:
            self._late += host
        self._resume_host(call, end)

    def _resume_host(self, call: Event, awaited_ns: int) -> None:
        """Resume the host after a wait; time beyond the simulated latency counts as host time."""
        after_wait_ns = call.end_ns - max(awaited_ns + _SYNC_NS, call.start_ns)
        self._late += max(0, after_wait_ns) + max(0, self._latency_ns - _LATENCY_NS)
        self._cursor = max(self._cursor, call.end_ns)

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)


def _stream(event: Event) -> int:
    stream = event.number("stream")
    return stream if stream >= 0 else event.tid if isinstance(event.tid, int) else 0
