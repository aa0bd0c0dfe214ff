"""What calls of libraries cost a host by their kind."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from golden.scenarios import builder, kernel
from presim.engine.calls import NO_CALLS, CallCosts
from presim.trace.schema import HostCall, Kind, Trace
from presim.trace.signatures import Collective, Copy, Gemm

COSTS = CallCosts(launch=1, product=2, transfer=3, collective=5, event=7)
PRODUCT = Gemm(m=1, n=1, k=1, batch=1, dtype="bfloat16")


def test_only_library_calls_cost_cpu_time_by_kind() -> None:
    build = builder(world_size=2)
    build.work(kernel(1))
    build.work(PRODUCT)
    build.work(Copy(direction="h2d", bytes=8))
    build.work(Copy(direction="memset", bytes=8))
    build.work(Collective(kind="all_reduce", bytes=8, dtype="float32", group=0))
    build.wait(build.record(stream=0), stream=1)
    build.alloc(512, 512)
    build.device_sync()
    build.step()
    assert COSTS.of(build.trace()).tolist() == [1, 2, 3, 1, 5, 7, 7, 0, 0, 0]
    assert not NO_CALLS.of(build.trace()).any()


def test_replayed_kernels_of_a_cuda_graph_cost_no_call() -> None:
    build = builder()
    build.work(kernel(1))
    build.work(PRODUCT)
    trace = build.trace()
    replayed = dataclasses.replace(trace, columns={**trace.columns, "value": np.array([0, 1], np.int64)})
    assert COSTS.of(replayed).tolist() == [1, 0]


def test_allocations_are_not_mistaken_for_graph_replays() -> None:
    build = builder()
    build.alloc(512, 1)
    build.work(kernel(1))
    assert COSTS.of(build.trace()).tolist() == [0, 1]


def test_negative_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        CallCosts(product=-1)


def memory_calls(*entries: tuple[Kind, int, int]) -> Trace:
    """A trace of entries of a kind with an object and a value."""
    build = builder()
    for _ in entries:
        build.step()
    trace = build.trace()
    kind, objects, values = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    columns = {"kind": kind.astype(np.uint8), "object": objects, "value": values}
    return dataclasses.replace(trace, columns={**trace.columns, **columns})


def test_work_on_memory_costs_by_its_size() -> None:
    """Small blocks are of memory that the driver locked before; first use only costs its pages."""
    costs = CallCosts(
        device_alloc=1, device_alloc_MiB=10, device_free=2, device_free_MiB=20, lock=3, lock_MiB=30, unlock=4,
        unlock_MiB=40, first_touch_MiB=50,
    )  # fmt: skip
    mib = 1 << 20
    trace = memory_calls(
        (Kind.SEGMENT_ALLOC, 0x1000, 2 * mib),
        (Kind.SEGMENT_FREE, 0x1000, 2 * mib),
        (Kind.HOST_CALL, HostCall.LOCK, mib),
        (Kind.HOST_CALL, HostCall.LOCK, 2 * mib),
        (Kind.HOST_CALL, HostCall.UNLOCK, mib),
        (Kind.HOST_CALL, HostCall.UNLOCK, 3 * mib),
        (Kind.HOST_CALL, HostCall.FIRST_TOUCH, mib // 2),
        (Kind.ALLOC, 0, 2 * mib),
    )
    assert costs.of(trace).tolist() == [21, 42, 3, 60, 4, 120, 25, 0]


def test_locking_64_MiB_takes_3_ms() -> None:
    """The figure of pytorch/pytorch pull request 186162."""
    trace = memory_calls((Kind.HOST_CALL, HostCall.LOCK, 64 << 20))
    assert CallCosts().of(trace).tolist() == [pytest.approx(3e6, rel=0.01)]
