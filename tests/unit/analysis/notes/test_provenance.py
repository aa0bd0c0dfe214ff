"""What widens the interval of a step time."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.analysis.notes.provenance import SPREAD, Doubts, reaches_experts
from presim.evaluation.evaluate_traces import evaluate
from presim.result import Result
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Routed, Splits
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Gemm, Kernel, Signature

ROUTED = Routed("deepep", 4096, 4096, 8, 64, 20)
SPLITS = Splits(0, (1, 3), (2, 2))


def trace(group: str, collective: Collective) -> Trace:
    groups = (Group("dp", (0, 1), 2), Group(group, (0, 1), 2))
    build = TraceBuilder(Manifest(world_size=2, rank=0, gpu="", gpus_per_node=2, script="", groups=groups))
    build.work(collective)
    return build.trace()


@pytest.mark.parametrize(
    ("group", "collective", "reaches"),
    [
        ("tp", Collective("dispatch", 1, "bfloat16", 1, routed=ROUTED), True),
        ("tp", Collective("all_to_all", 1, "bfloat16", 1, splits=SPLITS), True),
        ("EXPERT_MODEL_PARALLEL_GROUP", Collective("all_to_all", 1, "bfloat16", 1), True),
        ("mesh_ep", Collective("all_to_all", 1, "bfloat16", 1), True),
        ("CONTEXT_PARALLEL_GROUP", Collective("all_to_all", 1, "bfloat16", 1), False),  # heads for sequences
        ("keep", Collective("all_to_all", 1, "bfloat16", 1), False),
        ("mesh_ep", Collective("all_reduce", 1, "bfloat16", 1), False),  # of what all have
    ],
)
def test_tokens_reach_experts_by_a_library_in_uneven_parts_or_in_a_group_of_experts(
    group: str, collective: Collective, reaches: bool
) -> None:
    assert reaches_experts(trace(group, collective)) == reaches


def test_the_interval_includes_loads_of_experts_on_other_ranks() -> None:
    alone, dealt = (Doubts(1e9, 0.0, 0.0, 0.0, 0.0, experts).interval() for experts in (False, True))
    assert alone == pytest.approx((1e9 * (1 - SPREAD.clusters), 1e9 * (1 + SPREAD.clusters)))
    both = (SPREAD.clusters**2 + SPREAD.experts**2) ** 0.5
    assert dealt == pytest.approx((1e9 * (1 - both), 1e9 * (1 + both)))


def test_common_errors_of_prices_do_not_average_out() -> None:
    """A step on a GPU that nobody measured is as uncertain as its prices say."""
    low, high = Doubts(1e9, 0.48e9, 0.0, 0.0, 0.0, shared=0.32e9).interval()
    assert low <= 1e9 * (1 - 0.32)
    assert high >= 1e9 * (1 + 0.32)


def test_guesses_widen_the_upper_end_more_than_the_lower_one() -> None:
    low, high = Doubts(1e9, 0.0, 0.0, 0.0, 0.0, guess_shorter=0.09e9, underestimate=0.9e9).interval()
    assert high - 1e9 > 0.9e9
    assert 0.09e9 < 1e9 - low < 0.2e9


def test_a_step_of_guesses_and_prices_keeps_them_apart() -> None:
    """Half of the step is a kernel that is known by name only, half a product on a GPU that nobody measured."""
    result = result_on("mi300x", Gemm(8192, 8192, 8192, 1, "bfloat16"))
    assert result.step_time_s is not None
    assert result.step_time_high_s is not None
    assert result.step_time_low_s is not None
    (share,) = (one for one in result.provenance.by_origin if one.name == "analytic")
    assert result.step_time_high_s / result.step_time_s - 1 >= share.uncertainty * 2 / 3 * share.share
    guessed = result_on("h100-sxm", Kernel("mystery", (100_000, 1, 1), (1024, 1, 1)))
    assert [one.name for one in guessed.provenance.by_origin if one.share > 0.5] == ["guessed"]
    assert guessed.step_time_high_s is not None
    assert guessed.step_time_s is not None
    assert guessed.step_time_high_s > 5 * guessed.step_time_s


def result_on(gpu: str, signature: Signature) -> Result:
    build = TraceBuilder(Manifest(world_size=1, rank=0, gpu=gpu, gpus_per_node=1, script=""))
    for _ in range(3):
        build.work(signature, phase=Phase.FORWARD)
        build.step()
    return evaluate(Job.of(build.trace()), hardware.choose_cluster(gpu=gpu, world_size=1)).result
