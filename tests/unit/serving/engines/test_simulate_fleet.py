"""Requests through engines: what each step holds, what a fleet shares, what two runs have in common."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.errors import InputError
from presim.serving.engines import simulate_fleet as simulate_module
from presim.serving.engines.engine import Fleet, Limits, Replica, Router, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STEP = 1_000_000
COLUMNS = ("sent", "first", "last", "status", "replica", "preemptions", "hits", "steps", "gaps")


def limits(**changes: Any) -> Limits:
    return dataclasses.replace(
        Limits(num_gpu_blocks=200, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=400), **changes
    )


def engine(which: Limits | None = None, **changes: Any) -> Replica:
    which = which or limits()
    return Replica(which, constant_times(STEP, which), **changes)


def serve(workload: Workload, *replicas: Replica, compiled: bool = False, **more: Any) -> Served:
    return simulate(workload, Fleet(replicas or (engine(),), **more), record=True, compiled=compiled)


def random(seed: int, count: int = 20, **more: Any) -> Workload:
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.integers(0, 30 * STEP, count))
    return make("random", arrival, rng.integers(1, 150, count), rng.integers(1, 30, count), **more)


def test_a_lone_request_takes_a_step_a_token() -> None:
    served = serve(make("one", np.array([5]), np.array([64]), np.array([10])))
    assert served.first.tolist() == [5 + STEP]
    assert served.last.tolist() == [5 + 10 * STEP]
    assert served.gaps.tolist() == [[STEP, 1]] * 9


def test_a_long_prompt_is_cut_to_the_token_budget() -> None:
    served = serve(make("one", np.array([0]), np.array([150]), np.array([1])))
    assert served.steps[:, serving_state.LOG_TOKENS].tolist() == [64, 64, 22]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_asynchronous_scheduling_hides_the_host_behind_the_device(asynchronous: bool) -> None:
    """A step then costs the longer of both, else their sum."""
    which = limits(async_scheduling=asynchronous)
    times = dataclasses.replace(constant_times(STEP, which), host_ns=STEP * 0.25, back_ns=STEP * 0.25)
    served = simulate(
        make("one", np.array([0]), np.array([8]), np.array([50])), Fleet((Replica(which, times),)), compiled=False
    )
    steady = np.median(np.diff(served.steps[5:45, serving_state.LOG_START]))
    assert steady == (STEP if asynchronous else 1.5 * STEP)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("launch", [0.5, 2.0])
def test_host_and_device_are_two_lines(asynchronous: bool, launch: float) -> None:
    """Launches run beside kernels: a step takes the longer of both, and asynchronously all of the host's work."""
    which = limits(async_scheduling=asynchronous)
    base = constant_times(STEP, which)
    launches = np.full(len(base.token_ns), STEP * launch)
    times = dataclasses.replace(base, host_ns=STEP * 0.25, back_ns=STEP * 0.25, decode_launch_ns=launches)
    served = simulate(
        make("one", np.array([0]), np.array([8]), np.array([50])), Fleet((Replica(which, times),)), compiled=False
    )
    steady = np.median(np.diff(served.steps[5:45, serving_state.LOG_END]))
    host = 0.5 + launch
    assert steady == STEP * (max(1.0, host) if asynchronous else 0.5 + max(1.0, launch))


def test_an_engine_that_looks_seldom_lets_arrivals_wait() -> None:
    """With an interval of n steps, a prompt that comes while others decode waits for the n-th step after the last."""
    which = limits(scheduler_recv_interval=5, async_scheduling=False)
    load = make("two", np.array([0, STEP * 3 // 2]), np.array([8, 8]), np.array([30, 2]))
    served = simulate(load, Fleet((engine(which),)), compiled=False)
    assert served.first.tolist() == [STEP, 7 * STEP]
    often = simulate(load, Fleet((engine(limits(async_scheduling=False)),)), compiled=False)
    assert often.first.tolist() == [STEP, 3 * STEP]


@given(
    st.integers(0, 10_000),
    st.booleans(),
    st.sampled_from(["round-robin", "least-loaded", "power-of-two", "prefix", "session"]),
)
@settings(max_examples=examples(10), deadline=None)
def test_all_tokens_come_out_whatever_the_fleet_is(seed: int, caching: bool, router: Router) -> None:
    workload = random(seed)
    some = engine(limits(num_gpu_blocks=30, enable_prefix_caching=caching, scheduler_reserve_full_isl=False))
    served = serve(workload, some, some, router=router, seed=seed)
    assert served.finished.all()
    given_out = served.gaps[:, 1].sum() + len(workload)
    assert given_out == workload.output.sum()
    assert (served.first <= served.last).all()
    assert (served.sent < served.first).all()
    used = served.steps[:, serving_state.LOG_USED]
    assert used.max() <= 29
    assert used.min() >= 0


def test_compiled_and_uncompiled_say_the_same() -> None:
    """With prefixes, priorities and few blocks; and twice the same bytes."""
    count = 60
    rng = np.random.default_rng(3)
    shared = {"segment_first": np.arange(count + 1), "segments": rng.integers(0, 4, count), "segment_tokens": 16}
    rest = random(3, count, priority=rng.integers(0, 2, count), **shared)
    workload = dataclasses.replace(rest, prompt=rest.prompt + 16)
    for policy in ("fcfs", "priority"):
        some = engine(limits(num_gpu_blocks=40, policy=policy, scheduler_reserve_full_isl=False))
        plain, compiled, again = (
            serve(workload, some, some, router="prefix", compiled=compiled) for compiled in (False, True, True)
        )
        for column in COLUMNS:
            assert getattr(plain, column).tolist() == getattr(compiled, column).tolist()
            assert getattr(again, column).tobytes() == getattr(compiled, column).tobytes()
        assert plain.preemptions.sum() > 0
        assert plain.hits.sum() > 0


def test_a_client_keeps_as_many_in_flight_as_it_may() -> None:
    workload = dataclasses.replace(random(1), concurrency=3, arrival_ns=np.zeros(20, np.int64))
    served = serve(workload)
    for sent in served.sent:
        assert ((served.sent <= sent) & (served.last > sent)).sum() <= 3


def test_a_turn_is_sent_when_the_one_before_it_is_answered() -> None:
    """Its prompt holds the conversation, which the cache has."""
    columns = {"stream": np.array([7, 7]), "parent": np.array([-1, 0]), "delay_ns": np.array([0, 5 * STEP])}
    served = serve(make("chat", np.array([0, 0]), np.array([50, 100]), np.array([20, 5]), **columns))
    assert served.sent[1] == served.last[0] + 5 * STEP
    assert served.hits.tolist() == [0, 64]  # whole blocks of 50 + 20 tokens


def test_sessions_stay_on_their_replica() -> None:
    stream = np.repeat(np.arange(10), 2)
    served = serve(random(4, stream=stream), *[engine()] * 4, router="session")
    for chat in range(10):
        assert len(set(served.replica[stream == chat].tolist())) == 1
    assert len(set(served.replica.tolist())) > 1


def test_round_robin_and_least_loaded_share_alike() -> None:
    for router in ("round-robin", "least-loaded"):
        served = serve(make("same", np.zeros(40), np.full(40, 20), np.full(40, 5)), *[engine()] * 4, router=router)
        assert np.bincount(served.replica).tolist() == [10] * 4


def test_keys_and_values_move_one_transfer_at_a_time() -> None:
    """Prefill takes a step; two prompts that end together share the way, so the second comes a transfer later."""
    workload = make("two", np.zeros(2), np.full(2, 32), np.full(2, 4))
    fleet = (engine(role="prefill"), engine(role="decode"))
    served = serve(workload, *fleet, kv_token_bytes=1000, port_bytes_per_s=32e6, port_ns=0)
    assert served.finished.all()
    assert served.replica.tolist() == [1, 1]
    assert served.first[0] == STEP + STEP + STEP  # prefill, transfer, first decode
    assert served.first[1] >= served.first[0]


def test_hits_of_prefill_replicas_are_kept() -> None:
    """What the decoding replica loads is no hit of its cache, and does not hide that of the first."""
    shared = {"segment_first": np.arange(3), "segments": np.zeros(2), "segment_tokens": 32}
    workload = make("two", np.array([0, 50 * STEP]), np.full(2, 48), np.full(2, 4), **shared)
    served = serve(workload, engine(role="prefill"), engine(role="decode"))
    assert served.hits.tolist() == [0, 32]


def test_a_replica_serves_from_its_birth_to_its_end() -> None:
    late = engine(born_ns=10 * STEP)
    early = engine(gone_ns=10 * STEP)
    served = serve(random(5), early, late, router="least-loaded")
    assert (served.replica == (served.sent >= 10 * STEP)).all()
    assert served.finished.all()


def test_what_no_engine_can_hold_is_refused() -> None:
    served = serve(make("long", np.zeros(2), np.array([10, 500]), np.array([5, 5])))
    assert served.status.tolist() == [serving_state.FINISHED, serving_state.REFUSED]


def test_impossible_engines_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="the KV cache has 1 blocks"):
        limits(num_gpu_blocks=1)
    with pytest.raises(InputError, match="prefill and decode replicas"):
        Fleet((engine(role="prefill"),))


def test_prefixes_are_found_by_blocks_that_segments_do_not_divide() -> None:
    """Three segments of 24 tokens are four whole blocks of 16 and a part of the fifth."""
    load = make(
        "odd", np.array([0, 20 * STEP]), np.array([100, 100]), np.array([2, 2]),
        segment_first=np.array([0, 3, 6]), segments=np.array([7, 8, 9, 7, 8, 9]), segment_tokens=24,
    )  # fmt: skip
    assert serve(load).hits.tolist() == [0, 64]


@pytest.mark.long
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    looks=st.integers(0, 12),
    steps=st.integers(1, 40),
    depth=st.booleans(),
    engines=st.integers(1, 3),
)
def test_a_load_that_begins_uncompiled_has_the_same_result(
    seed: int, looks: int, steps: int, depth: bool, engines: int
) -> None:
    """Whenever the machine code is there, and however often the loop looks: every column is that of the whole loop."""
    workload, which = random(seed), limits(async_scheduling=depth)
    fleet = [engine(which) for _ in range(engines)]
    answers = itertools.chain([True] * (looks + 1), itertools.repeat(False))
    with (
        mock.patch.object(simulate_module, "_WAITING_STEPS", steps),
        mock.patch.object(simulate_module.compiled_loop, "is_compiling", side_effect=answers),
    ):
        switched = serve(workload, *fleet, compiled=True)
    expected = serve(workload, *fleet)
    for name in (*COLUMNS, "schedule", "events", "status", "queued", "scheduled", "moves"):
        np.testing.assert_array_equal(getattr(switched, name), getattr(expected, name), err_msg=name)
