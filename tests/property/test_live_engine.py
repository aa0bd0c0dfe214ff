"""An engine that receives ranks in pieces returns the same times as a simulation of the whole traces."""

from __future__ import annotations

import dataclasses
import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import jobs, priced, traces
from test_contention import contended_jobs
from test_engine import options
from test_shared_links import linked_jobs

from presim.cost.overlap import Demand
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine import loop
from presim.engine.calls import NO_CALLS, CallCosts
from presim.engine.live import LiveEngine
from presim.engine.matching import match_collectives
from presim.engine.ops import build_ops
from presim.engine.ports import port_columns
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, Manifest
from presim.trace.signatures import Copy
from support.long_cases import examples

SETTINGS = settings(deadline=None, max_examples=examples(20))
PRICE = Price(duration_ns=1, origin=Origin.ANALYTIC, uncertainty=0.1, estimator="test")


class Feeder:
    """Hands the entries of a job to a live engine in pieces, as its ranks would ask for them."""

    def __init__(self, job: list[PricedTrace], chosen: Options, compiled: bool) -> None:
        self.job = job
        self.options = chosen
        ports = port_columns(job[0].ports, [item.trace.manifest.rank for item in job])
        self.engine = LiveEngine(len(job), chosen, compiled=compiled, ports=ports)
        matching = match_collectives([item.trace for item in job])
        self.match = matching.match
        for needed in matching.needed.tolist():
            self.engine.add_rendezvous(needed)
        self.at = [0] * len(job)
        self.numbers: list[dict[int, int]] = [{} for _ in job]  # entry -> op
        self.recordings: list[dict[int, int]] = [{} for _ in job]
        self.ends: dict[int, int] = {}
        self.forgotten: set[int] = set()
        self.earliest: dict[int, int] = {}  # recording -> when it ends at the earliest

    def give(self, rank: int, entries: int) -> None:
        """The next entries of a rank; a launch of several sends and receives comes as a whole."""
        trace = self.job[rank].trace
        stop = min(self.at[rank] + entries, len(trace))
        while stop < len(trace) and _same_launch(trace.columns, stop - 1, stop):
            stop += 1
        piece = slice(self.at[rank], stop)
        self.at[rank] = stop
        part = dataclasses.replace(trace, columns={name: column[piece] for name, column in trace.columns.items()})
        ops = build_ops(dataclasses.replace(self.job[rank], trace=part), self.options, self.engine.classes)
        entry = ops.entries + piece.start
        numbers = self.engine.extend(rank, ops, self.match[rank][entry])
        self.numbers[rank] |= dict(zip(entry.tolist(), numbers.tolist()))
        self._aim(rank, ops.code, trace.columns["object"][entry], numbers)

    def _aim(self, rank: int, code: np.ndarray, serials: np.ndarray, numbers: np.ndarray) -> None:
        for kind, serial, number in zip(code.tolist(), serials.tolist(), numbers.tolist()):
            if kind == loop.RECORD:
                self.recordings[rank][serial] = number
            elif kind in (loop.WAIT, loop.EVENT_SYNC) and serial in self.recordings[rank]:
                self.engine.resolve_wait(number, self.recordings[rank][serial])

    def run(self) -> None:
        """Simulate, and hold that nothing that was said before has changed."""
        self.engine.run()
        for numbers in self.numbers:
            for number in numbers.values():
                if number in self.forgotten:
                    continue
                end = self.engine.end_ns(number)
                assert self.ends.setdefault(number, end) == end or self.ends[number] < 0
                self.ends[number] = end
        now = min(self.engine.host_ns(rank) for rank in range(len(self.job)))
        for rank, number in [
            (rank, number) for rank, recordings in enumerate(self.recordings) for number in recordings.values()
        ]:
            if self.engine.end_ns(number) < 0:
                bound = now + self.engine.bound_until(rank, number, now, 4).least_ns
                self.earliest[number] = max(bound, self.earliest.get(number, 0))

    def forget(self) -> None:
        """The engine lets go of what it can; recordings are asked for as before."""
        self.engine.drop_finished([None] * len(self.job))
        recordings = {number for each in self.recordings for number in each.values()}
        for numbers in self.numbers:
            self.forgotten |= {op for op in numbers.values() if self.engine._finished.index(op) < 0} - recordings


def _same_launch(columns: dict[str, np.ndarray], before: int, after: int) -> bool:
    kinds, serials = columns["kind"], columns["object"]
    both = kinds[before] == kinds[after] == Kind.COLLECTIVE
    return bool(both and serials[before] == serials[after] != 0)


def check(feeder: Feeder) -> None:
    """Every op ended when the simulation of the whole says so."""
    for rank in range(len(feeder.job)):
        feeder.engine.close(rank)
    feeder.run()
    assert all(feeder.engine.end_ns(number) >= earliest for number, earliest in feeder.earliest.items())
    whole = simulate_job(feeder.job, options=feeder.options, compiled=False)
    for index, item in enumerate(feeder.job):
        ends = whole[item.trace.manifest.rank].end_ns
        assert {entry: feeder.ends[number] for entry, number in feeder.numbers[index].items()} == {
            entry: int(ends[entry]) for entry in feeder.numbers[index]
        }


@given(st.one_of(jobs(), contended_jobs(), linked_jobs()), options, st.data(), st.booleans())
@SETTINGS
def test_pieces_in_any_order_make_the_whole(
    job: list[PricedTrace], chosen: Options, data: st.DataObject, compiled: bool
) -> None:
    """Ranks get ahead of each other by any number of entries; what was said once stays, on shared ports too."""
    feeder = Feeder(job, chosen, compiled)
    open_ranks = set(range(len(job)))
    while open_ranks:
        rank = data.draw(st.sampled_from(sorted(open_ranks)))
        feeder.give(rank, data.draw(st.integers(1, 6)))
        if feeder.at[rank] == len(job[rank].trace):
            open_ranks.discard(rank)
        feeder.run()
        if data.draw(st.booleans()):
            feeder.forget()
    check(feeder)


@pytest.mark.parametrize(
    "shares", [Demand(shared_in=1.0), Demand(memory=0.75)], ids=["on a port of two ranks", "on one GPU"]
)
def test_one_that_takes_over_from_another_at_one_moment_leaves_a_third_its_pace(shares: Demand) -> None:
    """A host waits for one copy and then issues the next one: concurrent work is not affected."""
    options = Options(host_factor=1.0, calls=NO_CALLS, launch_latency_ns=0, sync_latency_ns=0, queue_depth=2)
    builders = [TraceBuilder(Manifest(world_size=2, rank=rank, gpu="", gpus_per_node=8, script="")) for rank in (0, 1)]
    concurrent = 1 if shares.shared_in else 0
    builders[concurrent].work(Copy(direction="h2d", bytes=1), stream=1)
    for _ in range(2):
        builders[0].work(Copy(direction="memset", bytes=2), stream=0)
        builders[0].stream_sync(stream=0)
    for build in builders:
        build.device_sync()
    demands = {"h2d": dataclasses.replace(shares, shared_in=shares.shared_in / 4), "memset": shares}
    durations = {"h2d": 3000, "memset": 1001}
    job = []
    for build in builders:
        trace = build.trace()
        called = [signature.direction for signature in trace.signatures if isinstance(signature, Copy)]
        prices = tuple(msgspec.structs.replace(PRICE, duration_ns=durations[one]) for one in called)
        job.append(PricedTrace(trace, prices, demands=tuple(demands[one] for one in called), ports=(0, 0)))
    for order in itertools.product((0, 1), repeat=6):
        feeder = Feeder(job, options, compiled=False)
        for rank in (*order, *(0,) * 6, *(1,) * 6):
            if feeder.at[rank] < len(job[rank].trace):
                feeder.give(rank, 1)
                feeder.run()
        check(feeder)


@given(priced(traces()), options, st.data())
@SETTINGS
def test_looking_at_the_clock_changes_nothing(item: PricedTrace, chosen: Options, data: st.DataObject) -> None:
    """Marks split host time, and the device goes on as without them."""
    feeder = Feeder([item], chosen, compiled=False)
    spent = np.rint(item.trace.columns["host_ns"] * chosen.host_factor)
    while feeder.at[0] < len(item.trace):
        feeder.give(0, data.draw(st.integers(1, 6)))
        if feeder.at[0] < len(item.trace):
            feeder.engine.add_marker(0, data.draw(st.integers(0, int(spent[feeder.at[0]]))))
        feeder.run()
        if data.draw(st.booleans()):
            feeder.forget()
    check(feeder)


@given(st.lists(st.tuples(st.lists(st.integers(0, 20), max_size=4), st.integers(0, 60)), min_size=1, max_size=8))
@SETTINGS
def test_host_time_counts_once_where_launches_are_known_late(pieces: list[tuple[list[int], int]]) -> None:
    """A moment that was marked may lie behind launches that come after: these are late, and nothing else is."""
    chosen = Options(host_factor=1.0, calls=CallCosts(transfer=3))
    engine = LiveEngine(1, chosen, compiled=False)
    stands = marked = 0
    for host_ns, mark in pieces:
        build = TraceBuilder()
        for spent in host_ns:
            build.work(Copy(direction="h2d", bytes=1), stream=0, host_ns=spent)
            build.step(host_ns=spent)  # no op
        trace = build.trace()
        engine.extend(0, build_ops(PricedTrace(trace, (PRICE,) * len(trace.signatures)), chosen, engine.classes))
        stands += sum(2 * spent + 3 for spent in host_ns)
        marked = max(marked, stands + mark)
        engine.add_marker(0, mark)
        engine.run()
        assert engine.host_ns(0) == marked


@given(jobs(), options, st.data())
@SETTINGS
def test_ranks_that_wait_for_their_synchronisations_are_all_answered(
    job: list[PricedTrace], chosen: Options, data: st.DataObject
) -> None:
    """Each rank continues only after its wait has ended; in any order, no rank is left waiting."""
    feeder = Feeder(job, chosen, compiled=False)
    waiting: dict[int, int] = {}
    ended: set[int] = set()
    while len(ended) < len(job):
        ready = [rank for rank in range(len(job)) if rank not in waiting and rank not in ended]
        assert ready, "every rank waits"
        rank = data.draw(st.sampled_from(ready))
        entry = feeder.at[rank]
        feeder.give(rank, 1)
        if feeder.at[rank] == len(job[rank].trace):
            ended.add(rank)
            feeder.engine.close(rank)
        elif job[rank].trace.columns["kind"][entry] in (Kind.EVENT_SYNC, Kind.STREAM_SYNC, Kind.DEVICE_SYNC):
            waiting[rank] = feeder.numbers[rank][entry]
        feeder.run()
        waiting = {who: op for who, op in waiting.items() if not feeder.engine.has_passed(who, op)}
        if data.draw(st.booleans()):
            feeder.forget()
    check(feeder)


@given(jobs(), options, st.data())
@SETTINGS
def test_what_comes_late_keeps_the_order_of_its_streams(
    job: list[PricedTrace], chosen: Options, data: st.DataObject
) -> None:
    """Ranks are set aside and taken back at any time; nothing begins before what it has to wait for has ended."""
    feeder = Feeder(job, chosen, compiled=False)
    open_ranks = set(range(len(job)))
    while open_ranks:
        rank = data.draw(st.sampled_from(sorted(open_ranks)))
        feeder.engine.open(rank)
        feeder.give(rank, data.draw(st.integers(1, 6)))
        if feeder.at[rank] == len(job[rank].trace):
            open_ranks.discard(rank)
            feeder.engine.close(rank)
        elif data.draw(st.booleans()):
            feeder.engine.close(rank)
        feeder.engine.run()
    feeder.engine.run()
    columns = feeder.engine._columns
    for numbers in feeder.numbers:
        _one_at_a_time(columns, numbers)
        last_end: dict[int, int] = {}
        for entry in sorted(numbers):
            op = numbers[entry]
            code, slot, start, end = (int(columns[name][op]) for name in ("code", "slot", "start", "end"))
            assert end >= start >= 0
            target = int(columns["target"][op])
            if code == loop.WAIT and target >= 0:
                assert end >= int(columns["end"][target])
            if code > loop.WAIT or columns["joins"][op]:
                continue
            assert start >= last_end.get(slot, 0)
            last_end[slot] = max(end, last_end.get(slot, 0))
    _all_meet(feeder)


def _one_at_a_time(columns: dict[str, np.ndarray], numbers: dict[int, int]) -> None:
    """What takes a resource of a rank to itself begins when what had it before has ended."""
    taken: dict[int, list[tuple[int, int]]] = {}
    for op in numbers.values():
        if columns["code"][op] == loop.RUN:
            taken.setdefault(int(columns["resource"][op]), []).append(
                (int(columns["start"][op]), int(columns["end"][op]))
            )
    for spans in taken.values():
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(sorted(spans)))


def _all_meet(feeder: Feeder) -> None:
    columns = feeder.engine._columns
    starts: dict[int, set[int]] = {}
    for numbers in feeder.numbers:
        for op in numbers.values():
            if columns["code"][op] == loop.MEET and columns["match"][op] >= 0:
                starts.setdefault(int(columns["match"][op]), set()).add(int(columns["start"][op]))
    assert all(len(each) == 1 for each in starts.values())
