"""A live engine holds no more ops after a long run than after a short one, and still knows when events were."""

from __future__ import annotations

import itertools

import pytest

from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.live import LiveEngine
from presim.engine.ops import build_ops
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Manifest
from presim.trace.signatures import Copy

OPTIONS = Options.of()
WORK_NS = 100_000


def a_step() -> PricedTrace:
    """Ten pieces of work, an event, and a wait for it."""
    build = TraceBuilder(Manifest(world_size=2, rank=0, gpu="", gpus_per_node=8, script=""))
    for _ in range(10):
        build.work(Copy(direction="h2d", bytes=1), stream=0, host_ns=10)
    build.event_sync(build.record(stream=0, host_ns=10), host_ns=10)
    return priced(build)


def priced(build: TraceBuilder) -> PricedTrace:
    """All work takes as long."""
    trace = build.trace()
    price = Price(duration_ns=WORK_NS, origin=Origin.ANALYTIC, uncertainty=0.1, estimator="test")
    return PricedTrace(trace, (price,) * len(trace.signatures))


def run(engine: LiveEngine, rank: int, step: PricedTrace) -> int:
    """One step of a rank; the op of its recording."""
    ops = build_ops(step, OPTIONS, engine.classes)
    numbers = engine.extend(rank, ops)
    return int(numbers[-2])


@pytest.mark.parametrize("ahead", [1, 7])
def test_memory_does_not_grow_with_steps(ahead: int) -> None:
    """Two ranks, one of which takes ``ahead`` times as many steps."""
    engine, step, held = LiveEngine(2, OPTIONS, compiled=False), a_step(), []
    events: list[list[int]] = [[], []]
    for _ in range(30):
        for rank, steps in enumerate((1, ahead)):
            events[rank] += [run(engine, rank, step) for _ in range(steps)]
        engine.close(0)
        engine.close(1)
        engine.run()
        engine.drop_finished([None, None])
        held.append((engine.ops_in_memory, len(engine._columns["code"])))
    assert held[-1] == held[1]
    assert engine.ops_in_memory < 12 * (1 + ahead)
    for recorded in events:
        ends = [engine.end_ns(op) for op in recorded]
        assert all(10 * WORK_NS < after - before < 11 * WORK_NS for before, after in itertools.pairwise(ends))


def test_ops_that_the_caller_needs_are_kept() -> None:
    engine, step = LiveEngine(1, OPTIONS, compiled=False), a_step()
    first = run(engine, 0, step) - 10  # the step's first op
    for _ in range(5):
        run(engine, 0, step)
    engine.run()
    engine.drop_finished([first])
    assert engine.ops_in_memory == 6 * 12
    assert engine.end_ns(first) > WORK_NS
    engine.drop_finished([None])
    assert engine.ops_in_memory < 12
    assert engine.has_passed(0, first)


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("later_ns", [-1, 0, 1, OPTIONS.sync_latency_ns - 1, OPTIONS.sync_latency_ns, 10**6])
def test_a_wait_for_a_dropped_recording_returns_after_the_sync_latency(later_ns: int, *, forgets: bool) -> None:
    """The host stands some time after the recording's end when it begins to wait for it."""
    build = TraceBuilder(Manifest(world_size=1, rank=0, gpu="", gpus_per_node=8, script=""))
    build.work(Copy(direction="h2d", bytes=1), stream=0, host_ns=10)
    build.record(stream=0, host_ns=10)

    def engine_at(host_ns: int) -> tuple[LiveEngine, int]:
        """Whose host has stood still for so long; with the recording."""
        engine = LiveEngine(1, OPTIONS, compiled=False)
        recording = int(engine.extend(0, build_ops(priced(build), OPTIONS, engine.classes))[-1])
        engine.add_marker(0, host_ns)
        engine.run()
        return engine, recording

    engine, recording = engine_at(2 * WORK_NS)
    ended, stands = engine.end_ns(recording), engine.host_ns(0)
    assert 0 < ended < stands
    engine, recording = engine_at(2 * WORK_NS - (stands - ended) + later_ns)
    if forgets:
        engine.drop_finished([None])
    wait = engine.add_marker(0, 0)
    engine.resolve_wait(wait, recording)
    engine.close(0)
    engine.run()
    assert engine.end_ns(wait) == ended + max(later_ns, OPTIONS.sync_latency_ns)
