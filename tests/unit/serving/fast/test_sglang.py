"""SGLang's schedule: what a step holds, what waits, who is sent back. Its own scheduler's is in an integration test."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.errors import InputError
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STEP = 1_000_000
LIMITS = Limits(
    num_gpu_blocks=400, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=6000, scheduler="sglang", block_size=16
)


def serve(workload: Workload, *, compiled: bool = False, times: Any = None, **changes: Any) -> Served:
    limits = dataclasses.replace(LIMITS, **changes)
    replica = Replica(limits, times or constant_times(STEP, limits))
    return simulate(workload, Fleet((replica,)), record=True, compiled=compiled)


def steps_of(served: Served) -> list[dict[int, int]]:
    steps: list[dict[int, int]] = [{} for _ in served.steps]
    for step, item, tokens in served.schedule.tolist():
        steps[step][item] = tokens
    return steps


def requests(*shapes: tuple[int, int, int], **more: Any) -> Workload:
    """Requests by arrival in steps, prompt and output."""
    arrival, prompt, output = (np.array(column) for column in zip(*shapes))
    return make("some", arrival * STEP, prompt, output, **more)


def test_prompts_go_first_and_alone() -> None:
    served = serve(requests((0, 32, 6), (2, 32, 3)), async_scheduling=False)
    assert steps_of(served) == [{0: 32}, {0: 1}, {1: 32}, {0: 1, 1: 1}, {0: 1, 1: 1}, {0: 1}, {0: 1}]


def test_vllm_s_decodes_go_beside_prompts() -> None:
    """The difference that the one above shows."""
    served = serve(requests((0, 32, 6), (2, 32, 3)), async_scheduling=False, scheduler="vllm")
    assert {0: 1, 1: 32} in steps_of(served)


def test_one_prompt_is_cut_and_the_next_waits_for_its_end() -> None:
    served = serve(requests((0, 150, 1), (0, 40, 1)), async_scheduling=False)
    assert steps_of(served) == [{0: 64}, {0: 64}, {0: 22, 1: 32}, {1: 8}]  # 22 tokens take two pages of 16


def test_a_step_without_the_last_tokens_in_flight() -> None:
    """A request whose last token is in flight gets no other, though its batch is not back."""
    served = serve(requests((0, 16, 2)))
    assert steps_of(served) == [{0: 16}, {0: 1}]


def test_output_is_reserved_before_a_prompt_is_admitted() -> None:
    """Two requests fit into memory, and their output does not."""
    shapes = (0, 64, 1000), (0, 64, 1000)
    blocks = {"num_gpu_blocks": 1 + 1600 // 16, "async_scheduling": False}
    for caching in (True, False):
        first, second = serve(requests(*shapes), enable_prefix_caching=caching, **blocks).first.tolist()
        assert second > first + 900 * STEP
    both = serve(requests(*shapes), scheduler="vllm", scheduler_reserve_full_isl=False, **blocks)
    assert both.first[1] == 3 * STEP


def test_the_one_with_the_fewest_tokens_is_sent_back() -> None:
    """More than 4,096 output tokens are not reserved."""
    served = serve(requests((0, 64, 5000), (10, 64, 5000)), num_gpu_blocks=1 + 8400 // 16)
    assert served.preemptions.tolist() == [0, 1]
    assert served.finished.all()


def test_prefixes_are_found_once_they_are_computed() -> None:
    shared = {"segment_first": np.array([0, 1, 2, 3]), "segments": np.array([7, 7, 7]), "segment_tokens": 16}
    served = serve(requests((0, 20, 4), (0, 20, 4), (3, 20, 4), **shared))
    assert served.hits.tolist() == [0, 0, 16]


def test_equal_prefixes_that_were_computed_together_are_kept_once() -> None:
    shared = {"segment_first": np.array([0, 1, 2]), "segments": np.array([7, 7]), "segment_tokens": 32}
    served = serve(requests((0, 33, 9), (0, 33, 9), **shared), max_num_batched_tokens=128)
    used = served.steps[:, serving_state.LOG_USED]
    assert used[0] == 6  # three pages each
    assert used[2] == 4  # two of them shared


@pytest.mark.parametrize(("interval", "waited"), [(1, 4), (8, 10)])
def test_arrivals_are_looked_at_in_intervals(interval: int, waited: int) -> None:
    served = serve(requests((0, 16, 30), (2, 16, 1)), scheduler_recv_interval=interval, async_scheduling=False)
    assert served.first[1] <= waited * STEP
    assert served.first[1] > (waited - 2) * STEP


@given(st.integers(0, 1 << 20), st.booleans(), st.booleans())
@settings(max_examples=examples(12))
def test_all_are_served_and_the_compiled_loop_does_the_same(seed: int, caching: bool, overlap: bool) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    workload = make(
        "random", np.sort(rng.integers(0, 40 * STEP, count)), rng.integers(1, 200, count), rng.integers(1, 60, count)
    )
    kept = {"num_gpu_blocks": int(rng.integers(30, 90)), "enable_prefix_caching": caching, "async_scheduling": overlap}
    slow, fast = serve(workload, **kept), serve(workload, compiled=True, **kept)
    assert slow.finished.all()
    assert (slow.schedule == fast.schedule).all()
    assert (slow.last == fast.last).all()
    tokens = np.zeros(count, np.int64)
    np.add.at(tokens, slow.schedule[:, 1], slow.schedule[:, 2])
    again = slow.preemptions > 0
    assert (tokens[~again] + slow.hits[~again] == (workload.prompt + workload.output - 1)[~again]).all()


def test_a_plan_takes_the_scheduler_of_its_kernels() -> None:
    assert ServingPlan(kernels="sglang").decides == "sglang"
    assert ServingPlan(kernels="sglang", scheduler="vllm").decides == "vllm"
    assert ServingPlan(kernels="sglang", pp=2).decides == "vllm"
    with pytest.raises(InputError, match="SGLang's scheduling by priority is not modelled"):
        ServingPlan(scheduler="sglang", policy="priority").check(find("llama3-8b"))
