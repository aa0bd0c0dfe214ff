"""Fakes with which analysis and reports are tested apart from cost models and engine."""

from __future__ import annotations

import numpy as np

from presim.analysis.summarise import Device
from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.timeline import Timeline
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective, Copy, Kernel, Signature

DEVICE = Device(
    gpu="h100-sxm",
    gpu_name="H100 SXM 80GB",
    nodes=16,
    gpus_per_node=8,
    memory_bytes=85_520_809_984,
    context_bytes=560 << 20,
    context_source="fake",
    peak_flops={"bfloat16": 989.4e12, "float32": 66.9e12, "tf32": 494.7e12},
    launch_latency_ns=2_000,
)


def price_of(signature: Signature) -> Price:
    """600 TFLOP/s, 2.5 TB/s, 60 GB/s between GPUs, 50 GB/s to the host: round figures, never to be changed."""
    if isinstance(signature, Collective):
        return Price(20_000 + signature.bytes // 60, Origin.ANALYTIC, 0.25, "fake-nccl", "network")
    if isinstance(signature, Copy) and signature.direction in ("h2d", "d2h"):
        return Price(5_000 + signature.bytes // 50, Origin.ANALYTIC, 0.2, "fake-roofline", "memory")
    compute_ns = signature.flops // 600_000
    memory_ns = getattr(signature, "bytes", 0) // 2_500
    bound = "latency" if max(compute_ns, memory_ns) < 2_000 else "compute" if compute_ns > memory_ns else "memory"
    origin = Origin.INTERPOLATED if compute_ns > memory_ns else Origin.ANALYTIC
    return Price(
        2_000 + max(compute_ns, memory_ns), origin, 0.1, "fake-table" if compute_ns else "fake-roofline", bound
    )


def priced(trace: Trace) -> PricedTrace:
    """The trace with the fixed prices above."""
    unknown = tuple(index for index, signature in enumerate(trace.signatures) if isinstance(signature, Kernel))
    return PricedTrace(trace, tuple(price_of(signature) for signature in trace.signatures), unknown)


def simulate(given: PricedTrace, *, launch_latency_ns: int = 2_000) -> Timeline:
    """The simplest simulation that keeps the invariants of `Timeline`: one pass, no contention, no queue limit."""
    trace, durations = given.trace, given.durations_ns()
    size = len(trace)
    issue, start, end = (np.zeros(size, np.int64) for _ in range(3))
    free: dict[int, int] = {}
    events: dict[int, int] = {}
    host = 0
    columns = [trace.columns[name].tolist() for name in ("kind", "stream", "host_ns", "object")]
    for entry, (kind, stream, host_ns, serial) in enumerate(zip(*columns)):
        host += host_ns
        issue[entry] = begin = finish = host
        if kind in (Kind.WORK, Kind.COLLECTIVE):
            begin = max(host + launch_latency_ns, free.get(stream, 0))
            finish = free[stream] = begin + int(durations[entry])
        elif kind == Kind.EVENT_RECORD:
            begin = finish = events[serial] = max(host, free.get(stream, 0))
        elif kind == Kind.STREAM_WAIT:
            begin = finish = free[stream] = max(host, free.get(stream, 0), events.get(serial, 0))
        elif kind in (Kind.EVENT_SYNC, Kind.STREAM_SYNC, Kind.DEVICE_SYNC):
            waited = {
                Kind.EVENT_SYNC: [events.get(serial, 0)],
                Kind.STREAM_SYNC: [free.get(stream, 0)],
                Kind.DEVICE_SYNC: [0, *free.values()],
            }[Kind(kind)]
            finish = host = max(host, *waited)
        start[entry], end[entry] = begin, finish
    return Timeline(issue, start, end, np.zeros_like(start), np.zeros_like(start))
