"""Feeds the log of a running rank to a live engine piece by piece."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.assemble import Tables, stream_devices, stream_priorities
from presim.capture.reading.log import UNCLAIMED
from presim.capture.reading.log_tail import LogTail
from presim.cost.chain import Chain, demands_of
from presim.cost.collectives.fabric_flows import one_on_fabric
from presim.cost.overlap import Demand, Flows
from presim.cost.price import OnFabric, Price, PricedTrace
from presim.engine import loop
from presim.engine.live import LiveEngine
from presim.engine.ops import RankOps, build_ops
from presim.engine.simulation_options import Options
from presim.evaluation.live.collective_matching import CollectiveMatcher
from presim.evaluation.live.host_times import LiveHostTimes
from presim.evaluation.live.recordings import Recordings
from presim.hardware.cluster import Cluster
from presim.trace.representatives import Representatives
from presim.trace.schema import COLUMNS, WAITS, Group, Kind, Manifest, Trace
from presim.trace.signatures import Signature


class Feed:
    """One rank: reads its log, prices what is new, and hands it to the engine."""

    def __init__(
        self,
        directory: Path,
        rank: int,
        *,
        engine: LiveEngine,
        index: int,
        meetings: CollectiveMatcher,
        cluster: Cluster,
        options: Options,
        prices: Sequence[Path] = (),
        host: LiveHostTimes | None = None,
        representatives: Representatives | None = None,
    ) -> None:
        self.tail = LogTail(directory)
        self.rank = rank
        self.engine = engine
        self.meetings = meetings
        self.index = index  # among the engine's ranks
        self.cluster = cluster
        self.options = options
        self.recordings = Recordings()
        self._host = host or LiveHostTimes()
        self._tables = Tables(self.tail)
        # As at the start of the script; variables that the script sets are known only when it ends.
        self._nccl = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}
        self._chain = Chain.default(cluster, self._nccl, prices)
        self._signatures: list[Signature] = []  # with a price each
        self._prices: list[Price] = []
        self._demands: list[Demand] = []
        self._flows: list[Flows | None] = []
        self._representatives = representatives or Representatives([rank])
        self._last_ns: int | None = None  # CPU time of the last record
        self._stream_devices: dict[int, int] = {}  # of a process with several GPUs: those beside the first
        self._priorities: dict[int, int] = {}  # CUDA's, of streams with another than the default
        self._notes_read = 0
        self._waits: dict[int, int] = {}  # index of the record of a synchronisation -> op
        self._unended: deque[int] = deque()  # serials of recordings that had not ended at the last check
        self._last_serial = 0

    def take(self, count: int) -> None:
        """Pass the records up to a number to the engine."""
        first = self.tail.read_count
        records = self.tail.read(count)
        if not len(records):
            return
        ops = self._ops(records)
        match = self.meetings.match_ops(self.rank, ops, self._tables.communication.names())
        numbers = self.engine.extend(self.index, ops, match)
        serials = ops.trace.columns["object"][ops.entries]
        self._aim(ops, serials.tolist(), numbers.tolist())
        waits = np.flatnonzero(np.isin(records["kind"], WAITS)) + first
        self._waits.update(
            zip(waits.tolist(), numbers[(ops.code > loop.WAIT) & (ops.code < loop.FETCH)].tolist(), strict=True)
        )
        self._last_ns = int(records["cpu_ns"][-1])

    def take_settled(self, count: int | None = None) -> bool:
        """Pass the settled records (up to a number) to the engine; returns whether there were any.

        A launch learns its operator when the operator ends, so launches of an unfinished operator are not settled. The
        launches of one operator stay together, and so do the calls of one NCCL launch, even if other threads' records
        lie between them.
        """
        records = self.tail.peek(self.tail.count() if count is None else count)
        open_ = np.flatnonzero((records["kind"] <= Kind.COLLECTIVE) & (records["op"] == UNCLAIMED))
        num_settled = int(open_[0]) if len(open_) else len(records)
        # Read again: an operator may have ended meanwhile, with a last launch that was not among these records.
        num_settled = _last_undivided_index(self.tail.peek(self.tail.count()), num_settled)
        self.take(self.tail.read_count + num_settled)
        return num_settled > 0

    def knows(self, serial: int) -> bool:
        """Whether a recording of that serial, if there is one, has been passed to the engine."""
        waiting = self.tail.peek(self.tail.count())
        is_waiting = np.any((waiting["kind"] == Kind.EVENT_RECORD) & (waiting["object"] == serial))
        return serial <= self._last_serial and not is_waiting

    def wait_of(self, record: int) -> int:
        """The op of a synchronisation, by the index of its record; removes it."""
        return self._waits.pop(record)

    @property
    def first_wait(self) -> int | None:
        """The first op of a synchronisation that `wait_of` has not returned yet."""
        return min(self._waits.values(), default=None)

    def host_ns_until(self, cpu_ns: int) -> int:
        """Host time from the last record to a moment."""
        spent = 0 if self._last_ns is None else max(0, cpu_ns - self._last_ns)
        return round(spent * self.host_per_cpu)

    @property
    def host_per_cpu(self) -> float:
        """Host time over CPU time from now on, until more is known."""
        factor = self.options.host_factor
        return self._host.host_per_cpu * (1.0 if factor is None else factor)

    def ended(self, host_ns: int) -> int:
        """The lowest serial of a recording that has not ended at a time; the last serial + 1 if all have."""
        while self._unended and 0 <= self.engine.end_ns(self.recordings[self._unended[0]]) <= host_ns:
            self._unended.popleft()
        return self._unended[0] if self._unended else self._last_serial + 1

    def _ops(self, records: NDArray[np.void]) -> RankOps:
        records = self._tables.launches(records)
        columns = self._tables.columns(records, self._last_ns)
        if self.options.host_factor != 0:
            columns["host_ns"] = self._host.host_times_ns(
                records, columns["host_ns"].astype(np.int64), columns["signature"], self._tables
            )
        nothing = np.full(len(records), -1, np.int32)
        columns |= {"scope": nothing, "operator": nothing, "site": self._tables.site_of(records)}
        groups = self._tables.communication.groups()
        self._price_new(groups)
        # Only the piece's own signatures, because most pieces have a few of hundreds.
        signature = columns["signature"].astype(np.int64)
        used = np.unique(signature[signature >= 0])
        columns["signature"] = np.where(signature >= 0, np.searchsorted(used, signature), signature)
        numbers = used.tolist()
        trace = Trace(
            manifest=self._manifest(groups),
            signatures=tuple(self._signatures[number] for number in numbers),
            scopes=(),
            operators=(),
            columns={name: np.ascontiguousarray(columns[name], dtype) for name, dtype in COLUMNS.items()},
            sites=tuple(self._tables.sites),
        )
        fabric = OnFabric(tuple(self._flows[number] for number in numbers), (), ()) if self.cluster.network else None
        prices, demands = (tuple(table[number] for number in numbers) for table in (self._prices, self._demands))
        priced = PricedTrace(trace, prices, demands=demands, fabric=fabric)
        return build_ops(priced, self.options, self.engine.classes)

    def _price_new(self, groups: tuple[Group, ...]) -> None:
        """Price the signatures that came up since the last piece."""
        if len(self._signatures) == len(self._tables.signatures):
            return
        new = list(self._tables.signatures)[len(self._signatures) :]
        self._signatures += new
        prices = self._chain.price_all(new, groups, self.cluster)[0]
        uncrowded_prices = prices
        if self.cluster.network:
            fabric_prices = [
                one_on_fabric(signature, price, groups, self.rank, self.cluster, self._representatives, self._nccl)
                for signature, price in zip(new, prices)
            ]
            prices = [fabric_price.price for fabric_price in fabric_prices]
            uncrowded_prices = [fabric_price.uncrowded for fabric_price in fabric_prices]
            self._flows += [fabric_price.flows for fabric_price in fabric_prices]
        self._prices += prices
        self._demands += demands_of(new, uncrowded_prices, groups, self.cluster, self._nccl)

    def _manifest(self, groups: tuple[Group, ...]) -> Manifest:
        notes = self.tail.notes[self._notes_read :]
        self._notes_read = len(self.tail.notes)
        self._priorities |= stream_priorities(notes)
        self._stream_devices |= stream_devices(notes)
        return Manifest(
            world_size=self.cluster.world_size,
            rank=self.rank,
            gpu=self.cluster.gpu.id,
            gpus_per_node=self.cluster.gpus_per_node,
            script="",
            groups=groups,
            stream_priorities=self._priorities,
            stream_devices=self._stream_devices,
        )

    def _aim(self, ops: RankOps, serials: list[int], numbers: list[int]) -> None:
        """Point waits to recordings, which may be of an earlier piece."""
        for code, serial, number in zip(ops.code.tolist(), serials, numbers):
            if code == loop.RECORD:
                self.recordings[serial] = number
                self._unended.append(serial)
                self._last_serial = max(self._last_serial, serial)
            elif code in (loop.WAIT, loop.EVENT_SYNC) and serial in self.recordings:
                self.engine.resolve_wait(number, self.recordings[serial])


def _last_undivided_index(records: NDArray[np.void], stop: int) -> int:
    """The last place up to ``stop`` that divides neither an operator's launches nor the calls of one NCCL launch."""
    unit_ids = np.where(records["kind"] == Kind.WORK, records["value"], 0)  # the operator's call
    unit_ids = np.where(records["kind"] == Kind.COLLECTIVE, -records["object"], unit_ids)
    while len(cut := np.flatnonzero(np.isin(unit_ids[:stop], unit_ids[stop:]) & (unit_ids[:stop] != 0))):
        stop = int(cut[0])
    return stop
