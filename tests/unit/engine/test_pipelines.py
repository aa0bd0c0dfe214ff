"""Pipelines of equal stages, held against the closed forms of their bubbles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from golden.scenarios import builder, kernel, priced
from presim.cost.price import PricedTrace
from presim.engine.calls import NO_CALLS
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.signatures import Collective

INSTANT = Options(calls=NO_CALLS, launch_latency_ns=0, sync_latency_ns=0)
FORWARD, BACKWARD = 1_000, 2_000  # ns
COMPUTE, INCOMING, OUTGOING = 0, 1, 2  # streams


def gpipe(stage: int, stages: int, micro_batches: int) -> Iterator[str]:
    """All forward passes, then all backward passes."""
    yield from "F" * micro_batches
    yield from "B" * micro_batches


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> Iterator[str]:
    """As many forward passes ahead as there are stages behind, then in turns."""
    ahead = min(stages - stage, micro_batches)
    yield from "F" * ahead
    yield from "BF" * (micro_batches - ahead)
    yield from "B" * ahead


def message(build: TraceBuilder, kind: str, peer: int, stream: int) -> None:
    build.work(Collective(kind, 0, "bfloat16", 0, peer), stream=stream)


def run(build: TraceBuilder, task: str, stage: int, stages: int, times: int = 1) -> None:
    """Receive, compute, send; compute waits for what comes, what goes waits for compute."""
    before, after = (stage - 1, stage + 1) if task == "F" else (stage + 1, stage - 1)
    if 0 <= before < stages:
        message(build, "recv", before, INCOMING)
        build.wait(build.record(stream=INCOMING), stream=COMPUTE)
    build.work(kernel(times * (FORWARD if task == "F" else BACKWARD)), stream=COMPUTE)
    if 0 <= after < stages:
        build.wait(build.record(stream=COMPUTE), stream=OUTGOING)
        message(build, "send", after, OUTGOING)


def job(schedule: object, stages: int, micro_batches: int) -> list[PricedTrace]:
    traces = []
    for stage in range(stages):
        build = builder(stage, stages)
        for task in schedule(stage, stages, micro_batches):  # type: ignore[operator]
            run(build, task, stage, stages)
        traces.append(priced(build))
    return traces


@pytest.mark.parametrize("schedule", [gpipe, one_forward_one_backward])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (4, 8), (4, 4), (8, 16), (8, 64), (6, 1)])
def test_the_bubble_is_that_of_equal_stages(schedule: object, stages: int, micro_batches: int) -> None:
    """(p - 1) / (m + p - 1) of the step, for GPipe and for 1F1B alike."""
    timelines = simulate_job(job(schedule, stages, micro_batches), options=INSTANT)
    step = max(timeline.makespan_ns for timeline in timelines.values())
    busy = micro_batches * (FORWARD + BACKWARD)
    assert 1 - busy / step == pytest.approx((stages - 1) / (micro_batches + stages - 1), abs=1e-12)


def test_the_slowest_stage_determines_the_step_time() -> None:
    """A straggler of half the speed: its work, the way through the stages before it, a turn of the one behind."""
    stages, micro_batches, straggler = 4, 8, 2
    traces = job(one_forward_one_backward, stages, micro_batches)
    slow = builder(straggler, stages)
    for task in one_forward_one_backward(straggler, stages, micro_batches):
        run(slow, task, straggler, stages, times=2)
    traces[straggler] = priced(slow)
    timelines = simulate_job(traces, options=INSTANT)
    step = max(timeline.makespan_ns for timeline in timelines.values())
    least = (2 * micro_batches + straggler) * (FORWARD + BACKWARD)
    assert least <= step <= least + FORWARD + BACKWARD
