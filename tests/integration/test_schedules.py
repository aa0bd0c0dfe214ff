"""PyTorch's pipeline schedules on four running ranks, compared with closed forms of their stages' times.

Hosts take no time here, so that stages wait for each other and never for the machine that runs the tests.
"""

from __future__ import annotations

import functools

import pytest

from presim.cli import api
from presim.result import Rank, Result
from support.captured import SCRIPTS

pytestmark = [pytest.mark.torch_cuda]
STAGES, MICRO_BATCHES = 4, 8


@functools.cache
def captured(schedule: str) -> Result:
    script = [str(SCRIPTS / "schedules.py"), schedule, str(MICRO_BATCHES)]
    return api.run(*script, gpu="h100-sxm", world_size=STAGES, ranks="all", steps=2, host_time=False)


def by_rank(schedule: str) -> dict[int, Rank]:
    result = captured(schedule)
    assert (result.exit, result.error) == ("stopped", "")
    return {rank.rank: rank for rank in result.ranks}


def test_a_pipeline_takes_its_slowest_stage_s_work_and_one_pass_through_the_others() -> None:
    """1F1B: equal stages would idle (p - 1) / (m + p - 1); the last has the loss, the first no input gradient."""
    ranks = by_rank("1F1B")
    work = {number: rank.compute_s for number, rank in ranks.items()}
    expected = work[3] + sum(work[number] for number in (0, 1, 2)) / MICRO_BATCHES
    assert ranks[0].step_time_s == pytest.approx(expected, rel=0.05)  # and six hops from node-mate to node-mate
    equal = (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)
    assert equal < ranks[1].bubble_s / ranks[1].step_time_s < equal + 0.08


@pytest.mark.long
def test_a_zero_bubble_schedule_has_few_bubbles() -> None:
    """ZBV fills bubbles with weight gradients: it idles about half as long as interleaved 1F1B."""
    ranks = by_rank("ZBVZeroBubble")
    interleaved = (STAGES - 1) / (2 * MICRO_BATCHES + STAGES - 1)  # of 1F1B with two stages a rank
    assert max(rank.bubble_s / rank.step_time_s for rank in ranks.values()) < 0.55 * interleaved


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["InterleavedZeroBubble", "DualPipeV"])
def test_other_schedules_idle_less_than_1f1b_with_two_stages_per_rank(schedule: str) -> None:
    """Compared with the closed form of interleaved 1F1B."""
    ranks = by_rank(schedule)
    interleaved = (STAGES - 1) / (2 * MICRO_BATCHES + STAGES - 1)
    assert sorted(ranks) == list(range(STAGES))
    assert max(rank.bubble_s / rank.step_time_s for rank in ranks.values()) < interleaved
