"""Data-parallel ranks that share experts: they step together, and who comes late waits for the next round."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.serving.engines.engine import Fleet, Limits, Replica, StepTimes, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STEP = 1_000_000
LIMITS = Limits(num_gpu_blocks=100, max_num_seqs=8, max_num_batched_tokens=128, max_model_len=400)


def times(experts_ns: float = 0.0) -> StepTimes:
    """A step takes a millisecond for every 16 tokens; experts of a token on each rank take so many ns."""
    tokens = np.arange(129)
    found = constant_times(STEP, LIMITS)
    shared = np.ceil(tokens) * experts_ns
    return dataclasses.replace(found, token_ns=np.ceil(tokens / 16) * STEP, shared_ns=shared)


def serve(
    load: Workload,
    ranks: int,
    group: int = 0,
    *,
    compiled: bool = False,
    experts_ns: float = 0.0,
    limits: Limits = LIMITS,
) -> Served:
    step = times(experts_ns)
    return simulate(load, Fleet((Replica(limits, step, group=group),) * ranks), record=True, compiled=compiled)


def test_a_prompt_on_one_rank_holds_up_the_decodes_of_the_other() -> None:
    """Alone, a decode goes on beside the other's prompt of 8 ms; together, it waits for it."""
    load = make("two", np.array([0, 2 * STEP + 1]), np.array([16, 128]), np.array([20, 2]))
    apart, together = serve(load, 2, group=-1), serve(load, 2)
    assert apart.last[0] == 20 * STEP
    assert together.last[0] == 27 * STEP
    assert together.gaps[:, 0].max() >= 8 * STEP


def test_who_comes_to_an_idle_rank_waits_for_the_round_s_end() -> None:
    """The idle rank runs a dummy batch beside the other's 8 ms prompt."""
    load = make("two", np.array([0, STEP]), np.array([128, 16]), np.array([3, 1]))
    assert serve(load, 2, group=-1).first.tolist() == [8 * STEP, 2 * STEP]
    assert serve(load, 2).first.tolist() == [8 * STEP, 9 * STEP]


def test_experts_take_what_the_tokens_of_all_ranks_take() -> None:
    """Two ranks of 16 tokens are 16 a rank; one rank's 16 are 8 a rank."""
    both = make("two", np.array([0, 0]), np.array([16, 16]), np.array([1, 1]))
    assert serve(both, 2, experts_ns=1000).first.tolist() == [STEP + 16_000] * 2
    one = make("one", np.array([0]), np.array([16]), np.array([1]))
    assert serve(one, 2, experts_ns=1000).first.tolist() == [STEP + 8_000]


def test_ranks_that_run_cuda_graphs_are_padded_to_the_fullest_one() -> None:
    """One rank's 16 tokens are 16 on both as long as a graph has so many; its 32 are 16 a rank without one."""
    limits = dataclasses.replace(LIMITS, graph_tokens=24)
    for prompt, first in ((16, STEP + 16_000), (32, 2 * STEP + 16_000)):
        one = make("one", np.array([0]), np.array([prompt]), np.array([1]))
        assert serve(one, 2, experts_ns=1000, limits=limits).first.tolist() == [first]


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=examples(8), deadline=None)
def test_steps_of_a_group_begin_and_end_together(seed: int, ranks: int) -> None:
    """Any two steps of two ranks are the same round, or one ends before the other begins."""
    rng = np.random.default_rng(seed)
    load = make("random", np.sort(rng.integers(0, 40 * STEP, 15)), rng.integers(1, 150, 15), rng.integers(1, 20, 15))
    served = serve(load, ranks, experts_ns=500)
    assert served.finished.all()
    spans = sorted({(int(row[serving_state.LOG_START]), int(row[serving_state.LOG_END])) for row in served.steps})
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_compiled_and_uncompiled_step_alike() -> None:
    rng = np.random.default_rng(3)
    load = make("random", np.sort(rng.integers(0, 40 * STEP, 20)), rng.integers(1, 150, 20), rng.integers(1, 20, 20))
    one, two = (serve(load, 3, compiled=compiled, experts_ns=500) for compiled in (False, True))
    assert (one.last == two.last).all()
    assert (one.steps == two.steps).all()
