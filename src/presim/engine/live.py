"""Simulates ranks that are still running: ops arrive in pieces, and time advances only as far as is certain.

A `LiveEngine` has the columns of a simulation of whole traces, in arrays that grow. Ops and slots of R ranks are
interleaved (the i-th op of rank r has number ``i * R + r``), so that every rank can grow at its end. After each piece
`run` simulates up to the horizon: the earliest host time of a rank that may still issue ops. Later events could
change. The times therefore equal those of `presim.engine.simulate` on the whole trace (a property test checks this).
Finished ops are dropped; op numbers do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine import look_ahead, loop
from presim.engine.compaction import FinishedOps
from presim.engine.compiled_loop import compiled_run
from presim.engine.contention import Classes
from presim.engine.loop_choice import is_compiled
from presim.engine.ops import RankOps
from presim.engine.ports import port_columns
from presim.engine.program import OP_COLUMNS, STATE_COLUMNS, state_sizes
from presim.engine.simulation_options import Options

Ints = NDArray[np.int64]

_NOTHING = -1
# Columns of `loop.Program`, as `STATE_COLUMNS` describes those of `loop.State`.
_PROGRAM_COLUMNS = {
    **{name: ("op", _NOTHING if points_to else 0) for name, points_to in OP_COLUMNS.items()},
    "match": ("op", _NOTHING),
    "rank_end": ("rank", 0), "rank_open": ("rank", 1), "slot_first_of": ("rank", 0), "slot_end": ("rank", 0),
    "slot_rank": ("slot", 0), "slot_first": ("slot", _NOTHING), "slot_priority": ("slot", 0),
    "match_needed": ("match", 0),
    "classes": ("one", 0), "slows": ("none", 0), "takes": ("none", 0),
    "flows_first": ("none", 0), "flows_end": ("none", 0), "flows_bytes": ("none", 0),
    "flows_uncrowded": ("none", 0), "flows_island": ("none", 0),
    "flows_link": ("none", 0), "link_entries": ("one", 0), "flows_share": ("none", 0), "island_first": ("none", 0),
    "port": ("rank", _NOTHING), "port_first": ("none", 0), "port_next": ("rank", _NOTHING),
    "weight_first": ("none", 0), "weight_port": ("none", 0), "weights": ("none", 0),
    "rank_count": ("one", 0), "stride": ("one", 0),
    "launch_latency": ("one", 0), "sync_latency": ("one", 0), "queue_depth": ("one", 0),
}  # fmt: skip
_AXES = {name: axis for name, (axis, _) in (_PROGRAM_COLUMNS | STATE_COLUMNS).items()}
_UNSET = {name: value for name, (_, value) in (_PROGRAM_COLUMNS | STATE_COLUMNS).items()}


class LiveEngine:
    """Simulation of running ranks, which are numbered from 0."""

    def __init__(
        self,
        ranks: int,
        options: Options,
        *,
        compiled: bool | None = None,
        ports: Mapping[str, Ints] | None = None,
    ) -> None:
        """``ports``: the columns of `port_columns`; None if no GPUs share a port."""
        self._compiled = compiled
        self._is_compiled = False
        self._counted_ops = 0  # by the choice of the loop
        self._ranks = ranks
        self.classes = Classes()  # for `build_ops`
        self._bound_class_counts = (0, 0)
        self._contention, self._overlap = options.contention, options.overlap
        ports = ports or port_columns((), range(ranks))
        self._ports = len(ports["port_first"])
        self._sizes = state_sizes(ops=0, slots=0, matches=0, ranks=ranks, joins=0, ports=self._ports, links=0)
        self._sizes |= {"none": 0}
        self._joins = 0
        self._columns = {name: np.full(self._sizes[axis], _UNSET[name], np.int64) for name, axis in _AXES.items()}
        self._columns |= ports
        self._ops = [0] * ranks
        self._finished = FinishedOps(ranks)
        self._slots: list[dict[int, int]] = [{} for _ in range(ranks)]  # stream index -> slot
        self._last_put: dict[int, int] = {}  # slot -> last op put on it
        self._left_over = [0] * ranks  # host time after the last op
        rank_numbers = np.arange(ranks)
        for name in ("rank_end", "slot_first_of", "slot_end", "host_op"):
            self._columns[name][:] = rank_numbers
        for name, value in (
            ("rank_count", ranks),
            ("stride", ranks),
            ("launch_latency", options.launch_latency_ns),
            ("sync_latency", options.sync_latency_ns),
            ("queue_depth", options.queue_depth),
        ):
            self._columns[name][0] = value
        self._bind()

    # Input

    def extend(self, rank: int, ops: RankOps, match: Ints | None = None) -> Ints:
        """Add a rank's next ops and return their numbers.

        ``match``: by op, its rendezvous (from `add_rendezvous`), or -1. The caller resolves waits for recordings of
        an earlier piece with `resolve_wait`.
        """
        numbers = (self._ops[rank] + np.arange(len(ops.code))) * self._ranks + rank
        if not len(numbers):
            self._left_over[rank] += int(ops.host_cum_ns[-1]) if len(ops.host_cum_ns) else 0
            return numbers
        self._joins += int(ops.joins.sum())
        indices = self._finished.index(int(numbers[0])) + (numbers - numbers[0])
        self._reserve(op=int(indices[-1]) + 1)
        slots = self._slots_of(rank, ops)
        tables = {"op": np.append(indices, _NOTHING), "slot": np.append(slots, _NOTHING)}
        for name, points_to in OP_COLUMNS.items():
            values = getattr(ops, name)
            self._columns[name][indices] = tables[points_to][values] if points_to else values
        self._columns["match"][indices] = _NOTHING if match is None else match
        self._columns["host_ns"][indices] = self._spend(rank, ops.host_ns)
        self._left_over[rank] += int(ops.host_cum_ns[-1] - ops.host_cum_ns[ops.entries[-1]])
        self._link(ops, slots, numbers)
        self._append(rank, len(numbers))
        return numbers

    def add_marker(self, rank: int, host_ns: int) -> int:
        """Add an op without effect ``host_ns`` of host time after the rank's last entry, and return its number."""
        number = self._ops[rank] * self._ranks + rank
        index = self._finished.index(number)
        self._reserve(op=index + 1)
        self._columns["code"][index] = loop.EVENT_SYNC  # for nothing
        self._columns["host_ns"][index] = self._spend(rank, np.array([host_ns]))[0]
        self._left_over[rank] -= host_ns  # the next entry counts from the last one
        self._append(rank, 1)
        return number

    def resolve_wait(self, op: int, recording: int) -> None:
        """Set the recording of an earlier piece that a wait is for."""
        self._columns["target"][self._finished.index(op)] = max(_NOTHING, self._finished.index(recording))

    def add_rendezvous(self, members: int) -> int:
        """Add a rendezvous of ``members`` ops and return its number."""
        number = self._sizes["match"]
        self._reserve(match=number + 1)
        self._columns["match_needed"][number] = members
        return number

    def close(self, rank: int) -> None:
        """Declare that the rank issues no further ops, at least until others advance. `open` reverts this."""
        self._columns["rank_open"][rank] = 0

    def open(self, rank: int) -> None:
        """Declare that the rank may issue further ops."""
        self._columns["rank_open"][rank] = 1

    # Output

    def run(self) -> None:
        """Simulate up to the horizon."""
        class_counts = (len(self.classes), len(self.classes.flows))
        if class_counts != self._bound_class_counts:
            self._bound_class_counts = class_counts
            self._columns |= self.classes.columns(enabled=self._contention, growing=True, model=self._overlap)
            self._reserve(link=int(self._columns["island_first"][-1]))
            self._bind()
        ops = sum(self._ops)
        self._is_compiled = self._is_compiled or is_compiled(self._compiled, ops - self._counted_ops)
        self._counted_ops = ops
        (compiled_run() if self._is_compiled else loop.run)(self._program, self._state)

    def end_ns(self, op: int) -> int:
        """End of an op, ns; -1 if it has not been simulated yet. Of dropped ops, only recordings have one."""
        index = self._finished.index(op)
        return int(self._columns["end"][index]) if index >= 0 else self._finished.end_ns(op)

    def has_passed(self, rank: int, op: int) -> bool:
        """Whether the host has advanced past an op."""
        return int(self._columns["host_op"][rank]) > self._finished.index(op)

    def host_ns(self, rank: int) -> int:
        """Current time of the rank's host, ns."""
        return int(self._columns["host_time"][rank])

    def free_launches(self, rank: int) -> int:
        """Number of launches before one of the rank's streams can be full."""
        slots = list(self._slots[rank].values())
        outstanding = int(self._columns["outstanding"][slots].max()) if slots else 0
        return int(self._columns["queue_depth"][0]) - outstanding

    def bound_until(self, rank: int, op: int, now_ns: int, share: int) -> look_ahead.Bound:
        """What certainly passes from a time of the rank's host until an op on one of its streams ends.

        ``launches`` are those that the host can issue, as far as streams hold them, while 1 / ``share`` of the bound in
        ns still has to pass.
        """
        index = self._finished.index(op)
        if index < 0:
            return look_ahead.Bound(0, 0)
        slots = list(self._slots[rank].values())
        outstanding = np.sort(self._columns["outstanding"][slots])
        full_slot = slots[int(np.argmax(self._columns["outstanding"][slots]))]
        bound = look_ahead.bound_until(self._columns, index, now_ns, full_slot, share)
        depth = int(self._columns["queue_depth"][0])
        room = [int(depth - count) for count in outstanding[::-1]]
        launches = max(0, room[0]) + bound.launches
        return bound._replace(launches=min(launches, room[1]) if len(room) > 1 else launches)

    def is_busy(self, rank: int, stream: int) -> bool:
        """Whether the stream has unfinished ops."""
        slot = self._slots[rank].get(stream)
        return slot is not None and int(self._columns["outstanding"][slot]) > 0

    @property
    def ops_in_memory(self) -> int:
        """Number of ops held in memory."""
        return sum(self._ops) - self._finished.dropped

    def drop_finished(self, keep: Sequence[int | None]) -> None:
        """Drop ops that have ended and that their host has passed.

        ``keep``: by rank, the first op to keep because the caller needs its end; recordings need not be kept.
        """
        unset = {name: _UNSET[name] for name, axis in _AXES.items() if axis == "op"}
        self._sizes["op"] = self._finished.drop(self._columns, unset, self._ops, keep)
        self._bind()

    # Internals

    def _spend(self, rank: int, host_ns: Ints) -> Ints:
        """Host time of the next ops, including time left over from the previous piece.

        A marker may lie after some of these ops. They are moved to the marker's time; later ops keep their times.
        """
        host_times = np.cumsum(host_ns) + self._left_over[rank]
        advanced_times = np.maximum.accumulate(np.maximum(host_times, 0))
        self._left_over[rank] = int(host_times[-1] - advanced_times[-1])
        return np.diff(advanced_times, prepend=0)

    def _append(self, rank: int, ops: int) -> None:
        self._ops[rank] += ops
        self._columns["rank_end"][rank] = self._finished.index(self._ops[rank] * self._ranks + rank)

    def _slots_of(self, rank: int, ops: RankOps) -> Ints:
        """Slots of the piece's streams. New streams get new slots."""
        slot_by_stream = self._slots[rank]
        for stream, priority in zip(ops.streams.tolist(), ops.priority.tolist()):
            if stream in slot_by_stream:
                continue
            number = slot_by_stream[stream] = len(slot_by_stream) * self._ranks + rank
            self._reserve(slot=number + 1)
            self._columns["slot_rank"][number] = rank
            self._columns["slot_priority"][number] = priority
            self._columns["slot_end"][rank] = number + self._ranks
        return np.array([slot_by_stream[stream] for stream in ops.streams.tolist()], np.int64)

    def _link(self, ops: RankOps, slots: Ints, numbers: Ints) -> None:
        """Link the last op of each stream to its first op in the piece."""
        for slot, first in zip(slots.tolist(), ops.slot_first.tolist()):
            if first < 0:
                continue  # the host only synchronises with this stream
            index = self._finished.index(int(numbers[first]))
            if (last := self._finished.index(self._last_put.get(slot, _NOTHING))) >= 0:
                self._columns["following"][last] = index
            if self._columns["head"][slot] < 0:
                self._columns["head"][slot] = index
        on_streams = np.flatnonzero(ops.code <= loop.WAIT)
        for slot in np.unique(ops.slot[on_streams]).tolist():
            last = on_streams[ops.slot[on_streams] == slot][-1]
            self._last_put[int(slots[slot])] = int(numbers[last])

    def _reserve(self, **sizes: int) -> None:
        """Grow the columns of the given axes to at least these sizes."""
        self._sizes |= {axis: max(size, self._sizes[axis]) for axis, size in sizes.items()}
        required_sizes = state_sizes(
            ops=self._sizes["op"],
            slots=self._sizes["slot"],
            matches=self._sizes["match"],
            ranks=self._ranks,
            joins=self._joins,
            ports=self._ports,
            links=self._sizes["link"],
        )
        self._sizes["event"] = required_sizes["event"]
        grown = False
        for name, axis in _AXES.items():
            column = self._columns[name]
            if len(column) < self._sizes[axis]:
                longer = np.full(max(64, 2 * self._sizes[axis]), _UNSET[name], np.int64)
                longer[: len(column)] = column
                self._columns[name] = longer
                grown = True
        if grown:
            self._bind()

    def _bind(self) -> None:
        self._program = loop.Program(**{name: self._columns[name] for name in loop.Program._fields})  # type: ignore[arg-type]
        self._state = loop.LoopState(**{name: self._columns[name] for name in loop.LoopState._fields})  # type: ignore[arg-type]
