"""The loop for ranks that are still running: ops arrive piece by piece, and time advances only as far as is certain.

A `LiveEngine` holds the same columns as a simulation of whole traces, in arrays that grow: ops and slots of R ranks
are interleaved (the i-th op of rank r is number ``i * R + r``), so that every rank can grow at the end. After each
piece `run` simulates up to the moment at which the first host stands that may ask for more, and no further, since what
it asks for could change what comes then. What was simulated is therefore what `presim.engine.simulate` would have
said of the whole (held by a property test). What can matter no more is forgotten; numbers stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine import loop
from presim.engine.compaction import Past
from presim.engine.compiled import compiled_run
from presim.engine.contention import Classes
from presim.engine.ops import RankOps
from presim.engine.options import Options
from presim.engine.ports import port_columns
from presim.engine.program import OP_COLUMNS, STATE_COLUMNS, state_sizes

Ints = NDArray[np.int64]

_NOTHING = -1
_LOADING_OPS = 20_000  # as `presim.engine.simulate.LOADING_OPS`: of arrays elements are read more slowly than of lists
# Columns of `loop.Program`, as `STATE_COLUMNS` describes those of `loop.State`.
_PROGRAM_COLUMNS = {
    **{name: ("op", _NOTHING if points_to else 0) for name, points_to in OP_COLUMNS.items()},
    "match": ("op", _NOTHING),
    "rank_end": ("rank", 0), "rank_open": ("rank", 1), "slot_first_of": ("rank", 0), "slot_end": ("rank", 0),
    "slot_rank": ("slot", 0), "slot_first": ("slot", _NOTHING), "slot_priority": ("slot", 0),
    "match_needed": ("match", 0),
    "classes": ("one", 0), "slows": ("none", 0), "takes": ("none", 0),
    "flows_first": ("none", 0), "flows_end": ("none", 0), "flows_bytes": ("none", 0), "flows_island": ("none", 0),
    "flows_link": ("none", 0), "flows_share": ("none", 0), "island_first": ("none", 0),
    "port": ("rank", _NOTHING), "port_first": ("none", 0), "port_next": ("rank", _NOTHING),
    "voice_first": ("none", 0), "voice_port": ("none", 0), "voices": ("none", 0),
    "stride": ("one", 0), "launch_latency": ("one", 0), "sync_latency": ("one", 0), "queue_depth": ("one", 0),
}  # fmt: skip
_AXES = {name: axis for name, (axis, _) in (_PROGRAM_COLUMNS | STATE_COLUMNS).items()}
_UNSET = {name: value for name, (_, value) in (_PROGRAM_COLUMNS | STATE_COLUMNS).items()}


class LiveEngine:
    """Hosts, streams and rendezvous of ranks that are numbered from 0."""

    def __init__(
        self,
        ranks: int,
        options: Options,
        *,
        compiled: bool | None = None,
        ports: Mapping[str, Ints] | None = None,
    ) -> None:
        """``ports``: the columns of `port_columns`; None: every GPU has ports of its own."""
        switch = os.environ.get("PRESIM_ENGINE", "")
        self._compiled = compiled if compiled is not None else (switch == "compiled" if switch else None)
        self._ranks = ranks
        self.classes = Classes()  # for `build_ops`
        self._known_classes = (0, 0)
        self._contention = options.contention
        ports = ports or port_columns((), range(ranks))
        self._ports = len(ports["port_first"])
        self._sizes = state_sizes(ops=0, slots=0, matches=0, ranks=ranks, joins=0, ports=self._ports, links=0)
        self._sizes |= {"none": 0}
        self._joins = 0
        self._columns = {name: np.full(self._sizes[axis], _UNSET[name], np.int64) for name, axis in _AXES.items()}
        self._columns |= ports
        self._ops = [0] * ranks
        self._past = Past(ranks)
        self._slots: list[dict[int, int]] = [{} for _ in range(ranks)]  # stream index -> slot
        self._last_put: dict[int, int] = {}  # slot -> last op put on it
        self._left_over = [0] * ranks  # host time after the last op
        each = np.arange(ranks)
        for name in ("rank_end", "slot_first_of", "slot_end", "host_op"):
            self._columns[name][:] = each
        for name, value in (
            ("stride", ranks),
            ("launch_latency", options.launch_latency_ns),
            ("sync_latency", options.sync_latency_ns),
            ("queue_depth", options.queue_depth),
        ):
            self._columns[name][0] = value
        self._bind()

    # What ranks ask for

    def extend(self, rank: int, ops: RankOps, match: Ints | None = None) -> Ints:
        """Add a rank's next ops and return their numbers.

        ``match``: by op, the rendezvous it belongs to (`meeting`), -1: none. Waits for recordings of an earlier piece
        have to be resolved by the caller (`aim`).
        """
        numbers = (self._ops[rank] + np.arange(len(ops.code))) * self._ranks + rank
        if not len(numbers):
            self._left_over[rank] += int(ops.host_cum_ns[-1]) if len(ops.host_cum_ns) else 0
            return numbers
        self._joins += int(ops.joins.sum())
        places = self._past.place(int(numbers[0])) + (numbers - numbers[0])
        self._reserve(op=int(places[-1]) + 1)
        slots = self._slots_of(rank, ops)
        tables = {"op": np.append(places, _NOTHING), "slot": np.append(slots, _NOTHING)}
        for name, points_to in OP_COLUMNS.items():
            values = getattr(ops, name)
            self._columns[name][places] = tables[points_to][values] if points_to else values
        self._columns["match"][places] = _NOTHING if match is None else match
        self._columns["host_ns"][places] = self._spend(rank, ops.host_ns)
        self._left_over[rank] += int(ops.host_cum_ns[-1] - ops.host_cum_ns[ops.entries[-1]])
        self._link(ops, slots, numbers)
        self._append(rank, len(numbers))
        return numbers

    def mark(self, rank: int, host_ns: int) -> int:
        """Add a moment at which the host stands, ``host_ns`` of its time after its last entry; returns an op."""
        number = self._ops[rank] * self._ranks + rank
        place = self._past.place(number)
        self._reserve(op=place + 1)
        self._columns["code"][place] = loop.EVENT_SYNC  # for nothing
        self._columns["host_ns"][place] = self._spend(rank, np.array([host_ns]))[0]
        self._left_over[rank] -= host_ns  # the next entry counts from the last one
        self._append(rank, 1)
        return number

    def aim(self, op: int, recording: int) -> None:
        """A wait of a new piece is for a recording of an earlier one."""
        self._columns["target"][self._past.place(op)] = max(_NOTHING, self._past.place(recording))

    def meeting(self, members: int) -> int:
        """A new rendezvous of so many ops."""
        number = self._sizes["match"]
        self._reserve(match=number + 1)
        self._columns["match_needed"][number] = members
        return number

    def close(self, rank: int) -> None:
        """The rank asks for nothing more, or for nothing before others go on; `open` takes it back."""
        self._columns["rank_open"][rank] = 0

    def open(self, rank: int) -> None:
        """The rank may ask for more."""
        self._columns["rank_open"][rank] = 1

    # What became of it

    def run(self) -> None:
        """Simulate as far as it is certain."""
        known = (len(self.classes), len(self.classes.flows))
        if known != self._known_classes:
            self._known_classes = known
            self._columns |= self.classes.columns(wanted=self._contention, growing=True)
            self._reserve(link=int(self._columns["island_first"][-1]))
            self._bind()
        if self._compiled is None and sum(self._ops) > _LOADING_OPS:
            self._compiled = True
        (compiled_run() if self._compiled else loop.run)(self._program, self._state)

    def end_ns(self, op: int) -> int:
        """When an op ended; -1: not simulated yet. Of those that are forgotten only recordings may be asked for."""
        place = self._past.place(op)
        return int(self._columns["end"][place]) if place >= 0 else self._past.end_ns(op)

    def passed(self, rank: int, op: int) -> bool:
        """Whether the host has gone on after an op."""
        return int(self._columns["host_op"][rank]) > self._past.place(op)

    def host_ns(self, rank: int) -> int:
        """Where the host stands."""
        return int(self._columns["host_time"][rank])

    def room(self, rank: int) -> int:
        """Launches that the rank's host may make before one of its streams can be full."""
        slots = list(self._slots[rank].values())
        held = int(self._columns["outstanding"][slots].max()) if slots else 0
        return int(self._columns["queue_depth"][0]) - held

    def busy(self, rank: int, stream: int) -> bool:
        """Whether something that was put on a stream has not ended."""
        slot = self._slots[rank].get(stream)
        return slot is not None and int(self._columns["outstanding"][slot]) > 0

    @property
    def held(self) -> int:
        """Ops that take memory."""
        return sum(self._ops) - self._past.ops

    def forget(self, keep: Sequence[int | None]) -> None:
        """Let go of what has ended before its rank's host stands where it does.

        ``keep``: by rank, the first op whose end will be asked for though it is no recording.
        """
        unset = {name: _UNSET[name] for name, axis in _AXES.items() if axis == "op"}
        self._sizes["op"] = self._past.take(self._columns, unset, self._ops, keep)
        self._bind()

    # How it is kept

    def _spend(self, rank: int, host_ns: Ints) -> Ints:
        """Host time of the next ops, with what was left over.

        A moment may have been marked that lies behind some of them: they come at that moment, and the ops after it come
        when they would have.
        """
        stands = np.cumsum(host_ns) + self._left_over[rank]
        reached = np.maximum.accumulate(np.maximum(stands, 0))
        self._left_over[rank] = int(stands[-1] - reached[-1])
        return np.diff(reached, prepend=0)

    def _append(self, rank: int, ops: int) -> None:
        self._ops[rank] += ops
        self._columns["rank_end"][rank] = self._past.place(self._ops[rank] * self._ranks + rank)

    def _slots_of(self, rank: int, ops: RankOps) -> Ints:
        """Slots of the piece's streams, some of them new."""
        known = self._slots[rank]
        for stream, priority in zip(ops.streams.tolist(), ops.priority.tolist()):
            if stream in known:
                continue
            number = known[stream] = len(known) * self._ranks + rank
            self._reserve(slot=number + 1)
            self._columns["slot_rank"][number] = rank
            self._columns["slot_priority"][number] = priority
            self._columns["slot_end"][rank] = number + self._ranks
        return np.array([known[stream] for stream in ops.streams.tolist()], np.int64)

    def _link(self, ops: RankOps, slots: Ints, numbers: Ints) -> None:
        """Each stream goes on from its last op to its first one of the piece."""
        for slot, first in zip(slots.tolist(), ops.slot_first.tolist()):
            if first < 0:
                continue  # the host waits for it, nothing is put on it
            place = self._past.place(int(numbers[first]))
            if (last := self._past.place(self._last_put.get(slot, _NOTHING))) >= 0:
                self._columns["following"][last] = place
            if self._columns["head"][slot] < 0:
                self._columns["head"][slot] = place
        on_streams = np.flatnonzero(ops.code <= loop.WAIT)
        for slot in np.unique(ops.slot[on_streams]).tolist():
            last = on_streams[ops.slot[on_streams] == slot][-1]
            self._last_put[int(slots[slot])] = int(numbers[last])

    def _reserve(self, **sizes: int) -> None:
        """Make the columns of some axes at least so long."""
        self._sizes |= {axis: max(size, self._sizes[axis]) for axis, size in sizes.items()}
        wanted = state_sizes(
            ops=self._sizes["op"],
            slots=self._sizes["slot"],
            matches=self._sizes["match"],
            ranks=self._ranks,
            joins=self._joins,
            ports=self._ports,
            links=self._sizes["link"],
        )
        self._sizes["event"] = wanted["event"]
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
        self._state = loop.State(**{name: self._columns[name] for name in loop.State._fields})  # type: ignore[arg-type]
