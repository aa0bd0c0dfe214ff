"""Speculative decoding: what is given out, what a drafter costs, and that no token is lost or given out twice."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.answer import metrics
from presim.serving.drafting import Drafting, drafter, drafting_of
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.engine_weights import weight_bytes
from presim.serving.steps.times import build
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STEP = 1_000_000


def serve(workload: Workload, **changes: Any) -> Served:
    limits = dataclasses.replace(
        Limits(num_gpu_blocks=200, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=400), **changes
    )
    fleet = Fleet((Replica(limits, constant_times(STEP, limits)),))
    return simulate(workload, fleet, record=True, compiled=False)


def one(output: int) -> Workload:
    return make("one", np.array([0]), np.array([20]), np.array([output]))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_tokens_that_are_all_accepted_come_several_a_step(asynchronous: bool) -> None:
    """The first token comes with the prompt; then each step gives one and all drafted ones."""
    served = serve(one(13), draft_tokens=3, acceptance=1.0, async_scheduling=asynchronous)
    assert served.first.tolist() == [STEP]
    assert served.last.tolist() == [4 * STEP]
    assert served.steps[1:4, serving_state.LOG_TOKENS].tolist() == [4, 4, 4]


def test_tokens_that_are_all_rejected_come_one_a_step() -> None:
    """They take part in the step all the same, and what they computed is taken back."""
    served = serve(one(10), draft_tokens=3, acceptance=0.0)
    plain = serve(one(10))
    assert served.last.tolist() == plain.last.tolist() == [10 * STEP]


def test_the_share_of_accepted_tokens_is_the_one_asked_for() -> None:
    drafting = Drafting("eagle", 3, 0.7)
    served = serve(
        make("some", np.zeros(8, np.int64), np.full(8, 20), np.full(8, 300)),
        draft_tokens=3, acceptance=0.7, async_scheduling=False,
    )  # fmt: skip
    steps = len(served.steps)
    assert 300 / steps == pytest.approx(drafting.given_out, rel=0.1)
    assert drafting.given_out == pytest.approx(1 + 0.7 + 0.49 + 0.343)


@given(st.integers(0, 10_000), st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
@settings(max_examples=examples(10), deadline=None)
def test_every_request_ends_with_its_tokens(seed: int, drafted: int, acceptance: float, asynchronous: bool) -> None:
    """Whatever is preempted, cut to a budget or rejected; no step holds more tokens than the budget."""
    rng = np.random.default_rng(seed)
    workload = make(
        "random", np.sort(rng.integers(0, 30 * STEP, 15)), rng.integers(1, 150, 15), rng.integers(1, 40, 15)
    )
    served = serve(
        workload, draft_tokens=drafted, acceptance=acceptance, async_scheduling=asynchronous, num_gpu_blocks=30,
        scheduler_reserve_full_isl=False,
    )  # fmt: skip
    assert served.finished.all()
    assert served.steps[:, serving_state.LOG_TOKENS].max() <= 64
    assert (served.last >= served.first).all()


def test_uncompiled_and_compiled_draft_alike() -> None:
    rng = np.random.default_rng(5)
    workload = make(
        "random", np.sort(rng.integers(0, 30 * STEP, 15)), rng.integers(1, 150, 15), rng.integers(1, 40, 15)
    )
    limits = Limits(60, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=400, draft_tokens=2, acceptance=0.6)
    fleet = Fleet((Replica(limits, constant_times(STEP, limits)),))
    one, two = (simulate(workload, fleet, compiled=compiled) for compiled in (False, True))
    assert (one.last == two.last).all()
    assert (one.steps == two.steps).all()


def test_a_drafter_is_a_layer_of_the_model_or_another_model() -> None:
    model = find("deepseek-v3")
    mtp = drafter(model, Drafting("mtp", 1, 0.85))
    assert mtp is not None
    assert mtp.layers == 1
    assert mtp.experts is not None
    eagle = drafter(model, Drafting("eagle", 1, 0.7))
    assert eagle is not None
    assert eagle.experts is None
    assert drafter(model, Drafting("ngram", 1, 0.3)) is None
    small = find("llama3-8b")
    assert drafter(find("llama3-70b"), Drafting("draft", 1, 0.7, small)) is small


def test_drafting_makes_a_lone_decode_faster_and_takes_memory() -> None:
    """A lone decode reads weights; verifying two tokens reads little more."""
    cluster = choose_cluster(gpu="h100-sxm", world_size=8)
    model, plain = find("llama3-70b"), ServingPlan(tp=8)
    load = make("one", np.array([0]), np.array([500]), np.array([200]))
    took = []
    for drafting in (None, Drafting("eagle", 2, 0.7), Drafting("draft", 2, 0.7, find("llama3-8b"))):
        plan = dataclasses.replace(plain, drafting=drafting)
        engine = build(model, plan, cluster)
        fleet = Fleet((Replica(engine.limits, engine.times),))
        took.append(metrics.bench(simulate(load, fleet, compiled=False))["mean_tpot_ms"])
        assert weight_bytes(model, plan, cluster.gpu) >= weight_bytes(model, plain, cluster.gpu)
    assert took[1] < 0.6 * took[0]
    assert took[1] < took[2] < took[0]


def test_what_no_engine_would_do_is_refused() -> None:
    with pytest.raises(InputError, match="--speculative draft needs --draft-model"):
        drafting_of("draft", 1, None, None)
    with pytest.raises(InputError, match="17 draft tokens: the number must be from 1 to 16"):
        drafting_of("mtp", 17, None, None)
    assert drafting_of(None, 1, None, None) is None
    found = drafting_of("mtp", 1, None, None)
    assert found is not None
    assert found.acceptance == 0.85
