"""Steps that wait for the worker processes of a data loader."""

from __future__ import annotations

import pytest

from presim.analysis.summarise import steady_breakdown
from presim.analysis.time.breakdown import Breakdown
from presim.analysis.time.loading import data_loading
from presim.analysis.time.steps import TraceSteps, whole_rounds
from presim.engine.simulate import simulate
from presim.engine.simulation_options import Options
from presim.engine.timeline import Timeline
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Phase, Trace, fetch_request
from presim.trace.signatures import Gemm
from support import fakes

MS = 1_000_000
BATCH_NS = 100 * MS


def loader_job(workers: int, batches: int, batch_ns: int = BATCH_NS, epochs: int = 1) -> Trace:
    """A step for each batch; each worker is asked for two batches ahead. Each epoch has a loader of its own."""
    build = TraceBuilder()
    for epoch in range(epochs):
        requests = [fetch_request(epoch, batch % workers, batch // workers) for batch in range(batches + 2 * workers)]
        for request in requests[: 2 * workers]:
            build.fetch(request, batch_ns, is_cpu=False)
        for batch in range(batches):
            build.fetch(requests[batch + 2 * workers], batch_ns, is_cpu=False)
            build.fetch_wait(requests[batch])
            build.work(Gemm(512, 512, 512, 1, "bfloat16"), phase=Phase.FORWARD)
            build.step()
    return build.trace()


def analysed(trace: Trace) -> tuple[Timeline, TraceSteps, Breakdown]:
    timeline = simulate(fakes.priced(trace), options=Options(launch_latency_ns=2_000))
    return timeline, *steady_breakdown(trace, timeline, 0)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("batches", [8, 9, 10])
def test_a_loader_bound_step_takes_a_batch_over_the_number_of_workers(workers: int, batches: int) -> None:
    """Workers deliver together, so that one step waits for all of them and the next ones for none."""
    trace = loader_job(workers, batches)
    timeline, steps, parts = analysed(trace)
    assert steps.steady.duration_ns == pytest.approx(BATCH_NS / workers, rel=0.01)
    assert sum(parts.spent_ns.values()) == steps.steady.duration_ns
    loading = data_loading(trace, timeline, parts, steps)
    assert loading.mean_wait_ns == pytest.approx(BATCH_NS / workers, rel=0.02)
    assert loading.mean_step_ns == pytest.approx(steps.steady.duration_ns)


@pytest.mark.parametrize("epochs", [1, 3])
def test_loaders_of_further_epochs_add_no_workers(epochs: int) -> None:
    trace = loader_job(2, 8, epochs=epochs)
    timeline, steps, parts = analysed(trace)
    assert data_loading(trace, timeline, parts, steps).workers == 2


def test_a_loader_that_keeps_up_changes_no_step() -> None:
    timeline, steps, _ = analysed(loader_job(2, 8, batch_ns=1))
    assert timeline.end_ns.max() > 0
    assert steps.added_wait_ns == 0
    assert steps.steady == steps.steps[steps.steady_index]


def test_whole_rounds_are_the_last_steps() -> None:
    assert whole_rounds((1, 2, 3, 4, 5), 2) == (2, 3, 4, 5)
    assert whole_rounds((1, 2), 3) == (1, 2)
    assert whole_rounds((), 1) == ()
    assert whole_rounds((1, 2), 0) == (1, 2)
