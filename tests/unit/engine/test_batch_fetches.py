"""Workers of data loaders beside the host."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from golden.scenarios import OPTIONS, builder, kernel, priced
from presim.engine.simulate import simulate
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, fetch_request


def loading(times_ns: list[int], workers: int, prefetch: int, step_ns: int = 1_000) -> TraceBuilder:
    """A script that asks for batches ahead, as PyTorch's loader does, and computes with each."""
    build = builder()
    requests = [fetch_request(0, number % workers, number // workers) for number in range(len(times_ns))]
    ahead = workers * prefetch
    for request, time_ns in zip(requests[:ahead], times_ns):
        build.fetch(request, time_ns)
    for number, request in enumerate(requests):
        build.fetch_wait(request)
        if number + ahead < len(requests):
            build.fetch(requests[number + ahead], times_ns[number + ahead])
        build.work(kernel(step_ns), host_ns=10)
        build.device_sync()
    return build


def waits_ns(build: TraceBuilder, options: Options = OPTIONS) -> list[int]:
    """How long the host waits for each batch."""
    trace = build.trace()
    timeline = simulate(priced(build), options=options)
    return (timeline.end_ns - timeline.start_ns)[trace.mask(Kind.FETCH_WAIT)].tolist()


def test_one_slow_worker_sets_the_pace() -> None:
    waits = waits_ns(loading([50_000] * 6, workers=1, prefetch=2))
    assert waits[0] == 50_000
    assert all(45_000 < wait < 50_000 for wait in waits[1:])


def test_batches_prepared_ahead_cost_nothing() -> None:
    assert waits_ns(loading([900] * 6, workers=1, prefetch=2))[1:] == [0] * 5
    assert waits_ns(loading([3_500] * 16, workers=4, prefetch=2))[4:] == [0] * 12


def test_a_device_synchronisation_does_not_wait_for_workers() -> None:
    build = builder()
    build.fetch(fetch_request(0, 0, 0), 1_000_000)
    build.work(kernel(100))
    build.device_sync()
    build.step()
    assert simulate(priced(build), options=OPTIONS).issue_ns[-1] < 10_000


def test_cpu_time_scales_with_the_host_and_the_share_of_a_core_but_sleep_does_not() -> None:
    build = builder()
    for worker in range(3):
        build.fetch(fetch_request(0, worker, 0), 100_000)
        build.fetch(fetch_request(0, worker, 0), 50_000, is_cpu=False)
    build.fetch_wait(fetch_request(0, 0, 0))
    slow = dataclasses.replace(OPTIONS, host_factor=2.0)
    assert waits_ns(build, slow) == [250_000]
    assert waits_ns(build, dataclasses.replace(slow, cores_per_rank=2.0)) == [450_000]


@given(
    times_ns=st.lists(st.integers(0, 10_000), min_size=1, max_size=12),
    workers=st.integers(1, 4),
    prefetch=st.integers(1, 3),
)
def test_a_batch_is_never_used_before_it_is_ready(times_ns: list[int], workers: int, prefetch: int) -> None:
    """Compiled or interpreted; a worker prepares one batch at a time, in the order of the requests."""
    build = loading(times_ns, workers, prefetch)
    trace = build.trace()
    timelines = [simulate(priced(build), options=OPTIONS, compiled=compiled) for compiled in (False, True)]
    assert timelines[0].end_ns.tolist() == timelines[1].end_ns.tolist()
    start, end = timelines[0].start_ns, timelines[0].end_ns
    objects, is_fetch = trace.columns["object"], trace.mask(Kind.FETCH)
    ready = dict(zip(objects[is_fetch].tolist(), end[is_fetch].tolist()))
    waits = trace.mask(Kind.FETCH_WAIT)
    assert all(used >= ready[request] for request, used in zip(objects[waits].tolist(), end[waits].tolist()))
    for worker in range(workers):
        own = is_fetch & (objects >> 24 == worker)
        assert (start[own][1:] >= end[own][:-1]).all()
