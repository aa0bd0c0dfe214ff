"""A live engine gives nothing away at a moment at which its program may still ask for more."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim.cost.price import Origin, Price, PricedTrace
from presim.engine.calls import NO_CALLS
from presim.engine.live import LiveEngine
from presim.engine.ops import build_ops
from presim.engine.simulate import simulate
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.signatures import Gemm

NOBODY = 0  # an event that nobody recorded


@pytest.mark.parametrize("compiled", [False, True])
def test_priority_decides_between_simultaneous_launches_in_any_order_of_arrival(compiled: bool) -> None:
    """A full queue blocks the host when the first launch becomes known; at the same moment it is unblocked."""
    options = Options(host_factor=0.0, calls=NO_CALLS, queue_depth=1, launch_latency_ns=0, sync_latency_ns=0)
    build = TraceBuilder(msgspec.structs.replace(default_manifest(), stream_priorities={0: -1}))
    build.wait(NOBODY, stream=1)
    build.work(Gemm(8, 8, 8, 1, "bfloat16"), stream=1)
    build.work(Gemm(8, 8, 8, 1, "bfloat16"), stream=0)
    item = PricedTrace(build.trace(), (Price(100, Origin.ANALYTIC, 0.1, "test"),))
    engine = LiveEngine(1, options, compiled=compiled)
    numbers = []
    for piece in (slice(0, 2), slice(2, 3)):
        columns = {name: column[piece] for name, column in item.trace.columns.items()}
        part = dataclasses.replace(item, trace=dataclasses.replace(item.trace, columns=columns))
        numbers += engine.extend(0, build_ops(part, options, engine.classes)).tolist()
        engine.run()
    engine.close(0)
    engine.run()
    assert [engine.end_ns(number) for number in numbers] == [0, 200, 100]
    assert simulate(item, options=options, compiled=False).end_ns.tolist() == [0, 200, 100]
