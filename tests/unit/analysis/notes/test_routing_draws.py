"""Percentiles over draws of experts."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.analysis.notes.routing_draws import over_draws, unseen_ranks
from presim.evaluation.evaluate_traces import evaluate
from presim.result import Result
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Routed
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective
from support import workloads

TIMES = (1.0, 1.4, 1.1, 1.3, 1.2)


@pytest.fixture(scope="module")
def result() -> Result:
    return evaluate(Job.of(workloads.launch_bound()), hardware.choose_cluster(gpu="h100-sxm")).result


def with_host(result: Result, seconds: float) -> Result:
    return msgspec.structs.replace(result, time=msgspec.structs.replace(result.time, host_bound_s=seconds))


def test_percentiles_are_interpolated_and_times_keep_their_order(result: Result) -> None:
    draws = over_draws(result, "zipf:1.0:3", TIMES).draws
    assert draws is not None
    assert (draws.p10_s, draws.p50_s, draws.p90_s) == (pytest.approx(1.04), 1.2, pytest.approx(1.36))
    assert draws.step_times_s == list(TIMES)


def test_the_first_note_describes_the_draws(result: Result) -> None:
    """The other figures stay those of the first draw."""
    many = over_draws(with_host(result, 0.0), "zipf:1.0:3", TIMES)
    assert many.notes == [
        "Over 5 draws of experts (routing=zipf:1.0:3 and the next seeds) the step takes 1.04 s to 1.36 s (10th to 90th "
        "percentile), with a median of 1.20 s; the other figures describe the first draw.",
        *result.notes,
    ]
    assert many.step_time_s == result.step_time_s


def test_noise_of_host_times_is_noted_if_the_device_waits(result: Result) -> None:
    assert "Host times also differ" in over_draws(with_host(result, 0.5), "uniform:0", TIMES).notes[0]
    assert "ost times" not in over_draws(with_host(result, 0.001), "uniform:0", TIMES).notes[0]


def world(routing: str, rank: int = 0) -> Manifest:
    """Of a rank of two, whose tokens go to the experts of both."""
    facts = {"gpu": "h100-sxm", "gpus_per_node": 8, "script": "", "policies": {"routing": routing}}
    return Manifest(world_size=2, rank=rank, groups=(Group("ep", (0, 1), 2),), **facts)  # type: ignore[arg-type]


def exchanging(routing: str, rank: int = 0) -> Trace:
    build = TraceBuilder(world(routing, rank))
    how = Routed("deepep", 64, 1024, 2, 8, 20)
    build.work(Collective(kind="dispatch", bytes=64 * 1024, dtype="bfloat16", group=0, routed=how))
    return build.trace()


@pytest.mark.parametrize("routing", ["zipf:1.0", "uniform", "file:loads"])
def test_ranks_that_did_not_run_may_be_busier(routing: str) -> None:
    assert unseen_ranks([exchanging(routing)]) == [
        f"Experts are drawn by routing={routing}, and 1 of 2 ranks ran: another rank may have more popular experts "
        "and slow down all others. --ranks all includes every rank."
    ]


def test_there_is_no_note_if_all_ranks_ran_or_do_the_same() -> None:
    assert unseen_ranks([exchanging("zipf:1.0"), exchanging("zipf:1.0", rank=1)]) == []
    assert unseen_ranks([exchanging("balanced")]) == []
    assert unseen_ranks([TraceBuilder(world("zipf:1.0")).trace()]) == []
