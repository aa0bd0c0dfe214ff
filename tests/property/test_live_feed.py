"""Logs of ranks that run may be looked at whenever: what is simulated then is what the whole logs say."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.capture.reading.assemble import assemble
from presim.capture.reading.log import UNCLAIMED
from presim.cost.chain import price_trace
from presim.engine.live import LiveEngine
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.evaluation.live.collective_matching import CollectiveMatcher
from presim.evaluation.live.feed import Feed
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.host_noise import without_host_noise
from presim.trace.representatives import Representatives
from presim.trace.schema import Kind, Manifest
from support.capture_logs import LogBuilder
from support.long_cases import examples

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=2)
OPTIONS = Options(host_factor=1.0)
Step = Callable[[], object]  # what others see of a process from one moment to the next

LOCAL = ("kernels", "nested", "record", "wait", "sync", "graph")
SHARED = ("exchange", "exchange in an operator", "all_reduce", "two reductions")


class Process:
    """A rank of two, as the emulated device writes its log; several threads may be within operators."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir()
        self.folder = folder
        self.rank = rank
        self.log = LogBuilder()
        self.log.notes += [f"communicator serial=1 size=2 rank={rank} parent=-1", "members serial=1 ranks=0,1"]
        self._now = 0
        self._calls = 0
        self._launches = 0
        self._serials = 0

    def actions(self, names: list[str]) -> Iterator[Step]:
        """The steps of one thread's calls."""
        for name in names:
            yield from self._action(name)

    def _action(self, name: str) -> Iterator[Step]:
        match name:
            case "kernels":
                yield from self._operator([lambda: self._kernel(8), lambda: self._kernel(24)], "aten::add")
            case "nested":
                inner = self._operator([lambda: self._kernel(2), lambda: self._kernel(3)], "aten::sub")
                yield from self._operator([lambda: self._kernel(4), inner, lambda: self._kernel(5)], "aten::mul")
            case "record":
                yield self._record_event
            case "wait":
                yield lambda: self._append(Kind.STREAM_WAIT, stream=1, object=self._serials)
            case "sync":
                yield lambda: self._append(Kind.STREAM_SYNC, stream=1)
            case "graph":
                yield self._replay
            case "exchange":
                yield lambda: self._together("send", "recv")
            case "two reductions":
                yield lambda: self._together("all_reduce", "all_reduce")
            case "exchange in an operator":
                yield from self._operator([lambda: self._together("send", "recv", op=UNCLAIMED)], "")
            case "all_reduce":
                yield from self._operator([lambda: self._together("all_reduce", op=UNCLAIMED)], "")

    def _operator(self, parts: list[Callable[[], list[int]] | Iterator[Step]], name: str) -> Iterator[Step]:
        """Its launches, and its end, at which these learn of it one after the other, the last one first."""
        records: list[int] = []
        for part in parts:
            if isinstance(part, Iterator):
                yield from part
            else:
                yield functools.partial(_extend, records, part)
        self._calls += 1
        call = self._calls
        text = f"op name={name} in=Float[1000] out=Float[1000] args=" if name else self._group()
        for index in reversed(records):
            yield functools.partial(self.log.claim, index, text, call if name else 0)

    def _group(self) -> str:
        return f"op name=record_param_comms in= out= args={self.log.text('group name=0 size=2 ranks=0,1 desc=pair')}"

    def _append(self, kind: Kind, *, same_time: bool = False, **fields: object) -> int:
        self._now += 0 if same_time else 700
        return self.log.record(kind, cpu_ns=self._now, **fields)  # type: ignore[arg-type]

    def _kernel(self, blocks: int) -> list[int]:
        text = f"kernel name=add grid={blocks},1,1 block=128,1,1 shared=0"
        index = self._append(Kind.WORK, work=text)
        self.log._records[index]["op"] = UNCLAIMED
        return [index]

    def _record_event(self) -> None:
        self._serials += 1
        self._append(Kind.EVENT_RECORD, object=self._serials)

    def _together(self, *kinds: str, op: int = -1) -> list[int]:
        self._launches += 1
        peer = 1 - self.rank
        found = []
        for place, kind in enumerate(kinds):
            work = f"collective kind={kind} bytes=4096 dtype=bf16 comm=1 peer={-1 if kind == 'all_reduce' else peer}"
            index = self._append(Kind.COLLECTIVE, work=work, stream=1, object=self._launches, same_time=place > 0)
            self.log._records[index]["op"] = op if op == UNCLAIMED else self.log.text(self._group())
            found.append(index)
        return found

    def _replay(self) -> None:
        for place in range(3):
            kernel = f"kernel name=add grid={place + 1},1,1 block=64,1,1 shared=0"
            self._append(Kind.WORK, work=kernel, tag=int(place > 0), same_time=place > 0)


def _extend(records: list[int], part: Callable[[], list[int]]) -> None:
    records += part()


class Job:
    """Two processes that run, and the simulation beside them."""

    def __init__(self, folder: Path) -> None:
        self.processes = [Process(folder / str(rank), rank) for rank in (0, 1)]
        self.engine = LiveEngine(2, OPTIONS, compiled=False)
        meetings = CollectiveMatcher(self.engine, Representatives([0, 1]))
        self.feeds = [
            Feed(
                each.folder,
                each.rank,
                engine=self.engine,
                index=each.rank,
                meetings=meetings,
                cluster=CLUSTER,
                options=OPTIONS,
            )
            for each in self.processes
        ]

    def look(self, rank: int, records: int | None = None) -> None:
        """As the launcher does while others wait; ``records``: how many it knew of."""
        self.processes[rank].log.write(self.processes[rank].folder)
        self.feeds[rank].take_settled(records)
        self.engine.run()

    def ends(self) -> list[list[int]]:
        """When each op ends, by rank, once both processes have ended."""
        for rank, feed in enumerate(self.feeds):
            self.look(rank)
            feed.take(feed.tail.count())
            feed.tail.close()
            self.engine.close(rank)
        self.engine.run()
        return [[self.engine.end_ns(i * 2 + rank) for i in range(self.engine._ops[rank])] for rank in (0, 1)]

    def whole(self, *, recurring: bool = False) -> list[list[int]]:
        """The same of a simulation of the saved traces; ``recurring``: what recurs takes what it needs."""
        manifests = [Manifest(2, each.rank, "h100-sxm", 2, "", reference_host=recurring) for each in self.processes]
        traces = [assemble(each.log.log(), manifest) for each, manifest in zip(self.processes, manifests)]
        priced = [price_trace(trace, CLUSTER) for trace in without_host_noise(traces)]
        timelines = simulate_job(priced, options=OPTIONS, compiled=False)
        found = []
        for item in priced:
            is_op = np.isin(item.trace.column("kind"), (Kind.ALLOC, Kind.FREE, Kind.STEP), invert=True)
            found.append(timelines[item.trace.manifest.rank].end_ns[is_op].tolist())
        return found


def test_a_look_at_every_step_of_both_processes_changes_nothing() -> None:
    """Every call there is, by one thread of each rank; the ranks take turns step by step."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        steps = [each.actions([*LOCAL, *SHARED, *LOCAL]) for each in job.processes]
        for both in zip(*steps, strict=True):
            for rank, step in enumerate(both):
                step()
                job.look(rank)
        assert job.ends() == job.whole()


@given(st.lists(st.integers(1, 200), max_size=20))
@settings(deadline=None, max_examples=15)
def test_steps_that_take_the_same_each_time_are_simulated_as_their_saved_trace(cuts: list[int]) -> None:
    """What recurs takes what it needs, live and afterwards: the same to the nanosecond, looked at whenever."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        for process in job.processes:
            for number in range(9):
                for step in process.actions(["kernels", "all_reduce", "nested", "sync", "exchange"]):
                    step()
                process._append(Kind.STEP, object=number)
        for rank, process in enumerate(job.processes):
            whole = process.log.records()
            for cut in sorted(cuts):
                process.log.write(process.folder)
                job.feeds[rank].take_settled(min(cut, len(whole)))
        assert job.ends() == job.whole(recurring=True)


@st.composite
def actions(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    """What both ranks do together, in order, and what other threads do by themselves."""
    shared = draw(st.lists(st.sampled_from(SHARED + LOCAL), max_size=8))
    alone = draw(st.lists(st.lists(st.sampled_from(LOCAL), min_size=1, max_size=5), min_size=2, max_size=2))
    return shared, alone


@given(actions(), st.data())
@settings(deadline=None, max_examples=examples(12))
def test_looks_at_any_moment_change_nothing(what: tuple[list[str], list[list[str]]], data: st.DataObject) -> None:
    """Two threads a rank; the number of records is read before they are, and may be old by then."""
    shared, alone = what
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        threads = [(job.processes[rank].actions(names), rank) for rank in (0, 1) for names in (shared, alone[rank])]
        known = [0, 0]
        while threads:
            steps, rank = thread = data.draw(st.sampled_from(threads))
            step = next(steps, None)
            if step is None:
                threads.remove(thread)
                continue
            step()
            if data.draw(st.booleans()):
                job.look(rank, known[rank] if data.draw(st.booleans()) else None)
                known[rank] = len(job.processes[rank].log.records())
        assert job.ends() == job.whole()
