"""What calls of libraries cost a host by their kind."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from golden.scenarios import builder, kernel
from presim.engine.calls import NO_CALLS, CallCosts
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
