"""Who waits for whom, from simulated ranks to their breakdowns."""

from __future__ import annotations

import pytest

from presim.analysis.time.breakdown import Instant, break_down
from presim.analysis.time.steps import find_steps
from presim.analysis.time.waiting import earliest_starts
from presim.cost.price import PricedTrace
from presim.engine.simulate import simulate_job
from presim.engine.simulation_options import Options
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective, Gemm
from support import fakes

REDUCE = Collective("all_reduce", 1 << 20, "bfloat16", 0)


def rank(number: int, products: int) -> PricedTrace:
    """Products, and a reduction behind them on a stream of its own, for which the next product waits."""
    groups = (Group("dp", (0, 1), 2),)
    build = TraceBuilder(Manifest(world_size=2, rank=number, gpu="", gpus_per_node=2, script="", groups=groups))
    for _ in range(products):
        build.work(Gemm(4096, 4096, 4096, 1, "bfloat16"))
    build.wait(build.record(stream=0), stream=1)
    build.work(REDUCE, stream=1)
    build.wait(build.record(stream=1), stream=0)
    build.work(Gemm(8, 8, 8, 1, "bfloat16"))
    return fakes.priced(build.trace())


def test_the_rank_with_less_work_waits_for_the_other_by_the_difference() -> None:
    """Five products against two: the second rank waits for three of them, and moves data as long as the first."""
    priced = {0: rank(0, 5), 1: rank(1, 2)}
    options = Options(launch_latency_ns=0, contention=False)
    timelines = simulate_job(list(priced.values()), options=options, compiled=False)
    product = priced[0].prices[0].duration_ns
    spent = {}
    for number, item in priced.items():
        step = find_steps(item.trace, timelines[number]).steady
        spent[number] = break_down(item.trace, timelines[number], step, launch_latency_ns=0).spent_ns
    assert spent[0][Instant.WAITING] == 0
    assert spent[1][Instant.WAITING] == pytest.approx(3 * product, rel=0.05)
    moved = [spent[number][Instant.EXPOSED_COMMUNICATION] for number in (0, 1)]
    assert moved[0] == moved[1] > 0


@pytest.mark.parametrize("latency_ns", [0, 5_000])
def test_a_turn_comes_when_the_launch_is_over_and_the_stream_is_free(latency_ns: int) -> None:
    """Or what came before on its stream has ended; a collective begins then, as nobody is late."""
    groups = (Group("dp", (0, 1), 2),)
    build = TraceBuilder(Manifest(world_size=2, rank=0, gpu="", gpus_per_node=2, script="", groups=groups))
    build.work(Gemm(4096, 4096, 4096, 1, "bfloat16"))
    for _ in range(2):
        build.work(REDUCE, stream=1)
    priced = fakes.priced(build.trace())
    options = Options(launch_latency_ns=latency_ns, contention=False)
    timeline = simulate_job([priced], options=options, compiled=False)[0]
    assert earliest_starts(priced.trace, timeline, latency_ns).tolist() == timeline.start_ns.tolist()
    assert timeline.start_ns[1] == timeline.issue_ns[1] + latency_ns
    assert timeline.start_ns[2] == timeline.end_ns[1]
