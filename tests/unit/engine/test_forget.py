"""A live engine holds no more ops after a long run than after a short one, and still knows when events were."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.live import LiveEngine
from presim.engine.ops import build_ops
from presim.engine.options import Options
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
    trace = build.trace()
    price = Price(duration_ns=WORK_NS, origin=Origin.ANALYTIC, uncertainty=0.1, estimator="test")
    return PricedTrace(trace, (price,) * len(trace.signatures))


def run(engine: LiveEngine, rank: int, step: PricedTrace) -> int:
    """One step of a rank; the op of its recording."""
    ops = build_ops(dataclasses.replace(step), OPTIONS, engine.classes)
    numbers = engine.extend(rank, ops)
    return int(numbers[-2])


@pytest.mark.parametrize("ahead", [1, 7])
def test_what_is_held_does_not_grow_with_the_steps(ahead: int) -> None:
    """Two ranks, one of which takes ``ahead`` times as many steps."""
    engine, step, held = LiveEngine(2, OPTIONS, compiled=False), a_step(), []
    events: list[list[int]] = [[], []]
    for _ in range(30):
        for rank, steps in enumerate((1, ahead)):
            events[rank] += [run(engine, rank, step) for _ in range(steps)]
        engine.close(0)
        engine.close(1)
        engine.run()
        engine.forget([None, None])
        held.append((engine.held, len(engine._columns["code"])))
    assert held[-1] == held[1]
    assert engine.held < 12 * (1 + ahead)
    for recorded in events:
        ends = [engine.end_ns(op) for op in recorded]
        assert all(10 * WORK_NS < after - before < 11 * WORK_NS for before, after in itertools.pairwise(ends))


def test_what_the_caller_still_needs_stays() -> None:
    engine, step = LiveEngine(1, OPTIONS, compiled=False), a_step()
    first = run(engine, 0, step) - 10  # the step's first op
    for _ in range(5):
        run(engine, 0, step)
    engine.run()
    engine.forget([first])
    assert engine.held == 6 * 12
    assert engine.end_ns(first) > WORK_NS
    engine.forget([None])
    assert engine.held < 12
    assert engine.passed(0, first)
