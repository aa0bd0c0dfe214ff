"""Modules that were CUDA graphs: their kernels stay, what the host did for them goes."""

from __future__ import annotations

import numpy as np

from presim.trace.schema import Kind
from presim_study.as_graphs import as_graphs
from support import workloads


def test_only_what_the_host_did_within_the_modules_goes() -> None:
    trace = workloads.llama_8b(steps=1, layers=2)
    name = next(scope for scope in trace.scopes if "." in scope).split(".")[-1]
    found = as_graphs(trace, [name])
    inside = np.array([name in scope.split(".") for scope in trace.scopes] + [False])[trace.columns["scope"]]
    assert inside.any()
    assert not inside.all()
    before, after = trace.columns, found.columns
    np.testing.assert_array_equal(after["signature"], before["signature"])
    np.testing.assert_array_equal(after["host_ns"][~inside], before["host_ns"][~inside])
    np.testing.assert_array_equal(after["value"][~inside], before["value"][~inside])
    replayed = inside & (after["kind"].astype(np.int64) <= Kind.STREAM_WAIT) & (after["value"] == 1)
    assert not after["host_ns"][replayed].any()
    stretches = np.flatnonzero(inside & ~np.concatenate(([False], inside[:-1])))
    np.testing.assert_array_equal(after["host_ns"][stretches], before["host_ns"][stretches])


def test_without_modules_it_is_the_same_trace() -> None:
    trace = workloads.llama_8b(steps=1, layers=1)
    assert as_graphs(trace, ()) is trace
