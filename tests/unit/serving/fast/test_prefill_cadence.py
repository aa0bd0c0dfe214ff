"""vLLM's prefill_schedule_interval: prompts only in every Nth step, while there are decodes and none waits in vain."""

from __future__ import annotations

import numpy as np
import pytest

from presim.errors import InputError
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.workloads.workload import make

STEP = 1_000_000


def serve(interval: int, arrivals: list[int], prompt: int = 8, budget: int = 64) -> Served:
    limits = Limits(
        400,
        max_num_batched_tokens=budget,
        max_model_len=400,
        async_scheduling=False,
        prefill_schedule_interval=interval,
    )
    count = len(arrivals)
    load = make("some", np.array(arrivals), np.full(count, prompt), np.full(count, 30))
    return simulate(load, Fleet((Replica(limits, constant_times(STEP, limits)),)), record=True, compiled=False)


def steps_of(served: Served, item: int, prompt: int) -> list[int]:
    """Steps that computed the prompt of a request."""
    tokens = 0
    steps = []
    for step, other, scheduled in served.schedule.tolist():
        if other == item and tokens < prompt:
            steps.append(step)
            tokens += scheduled
    return steps


@pytest.mark.parametrize(("interval", "step"), [(1, 3), (4, 4), (8, 8)])
def test_a_prompt_waits_while_others_decode(interval: int, step: int) -> None:
    served = serve(interval, [0, 2 * STEP + STEP // 2])
    assert steps_of(served, 1, 8) == [step]
    assert served.finished.all()


def test_the_next_chunk_of_a_prompt_waits_as_well() -> None:
    alone, cadence = (serve(interval, [0, 5 * STEP + STEP // 2], prompt=80, budget=48) for interval in (1, 4))
    assert np.diff(steps_of(alone, 1, 80)).tolist() == [1]
    assert np.diff(steps_of(cadence, 1, 80)).tolist() == [4]


def test_an_engine_without_decodes_takes_prompts_at_once() -> None:
    assert steps_of(serve(8, [0, 100 * STEP]), 1, 8) == [30]


def test_a_queue_ends_the_wait() -> None:
    """vLLM's escape: where a step that takes prompts leaves some waiting, the next one takes prompts, too."""
    crowded = serve(8, [0, *[STEP // 2] * 6], prompt=40, budget=48)
    begun = [steps_of(crowded, item, 40)[0] for item in range(1, 7)]
    assert begun[0] == 8
    assert max(begun) - begun[0] <= 6


def test_data_parallel_ranks_and_sglang_are_refused() -> None:
    for fields in ({"dp": 2, "ep": True}, {"kernels": "sglang"}):
        with pytest.raises(InputError, match="without data-parallel ranks"):
            ServingPlan(prefill_schedule_interval=2, **fields).check(find("qwen3-30b-a3b"))
