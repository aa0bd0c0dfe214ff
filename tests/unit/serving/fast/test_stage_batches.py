"""Pipeline stages: every request ends however few are in flight, and a decode waits for its last token."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.errors import InternalError
from presim.serving.engines import simulate_fleet as engines
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.live_engine import LiveEngine
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_loop
from presim.serving.fast.stage_batches import EMPTY_STEP_NS
from presim.serving.workloads.workload import Workload, make
from support.long_cases import examples

STAGE_NS = 5 * EMPTY_STEP_NS  # longer than the engine sleeps


def limits(stages: int, *, asynchronous: bool = True, caching: bool = True, budget: int = 64) -> Limits:
    return Limits(
        num_gpu_blocks=400,
        max_num_seqs=16,
        max_num_batched_tokens=budget,
        max_model_len=600,
        pipeline_parallel_size=stages,
        async_scheduling=asynchronous,
        enable_prefix_caching=caching,
    )


def workload(count: int, prompt: int, output: int, concurrency: int = 0) -> Workload:
    load = make("alike", np.zeros(count, np.int64), np.full(count, prompt), np.full(count, output))
    return dataclasses.replace(load, concurrency=concurrency)


def serve(load: Workload, engine: Limits, stage_ns: int = STAGE_NS) -> Served:
    return simulate(load, Fleet((Replica(engine, constant_times(stage_ns, engine)),)), compiled=False)


@pytest.mark.parametrize("stages", range(2, 9))
@pytest.mark.parametrize("concurrency", range(1, 9))
def test_all_requests_end_with_fewer_in_flight_than_stages(stages: int, concurrency: int) -> None:
    """Prompts of several chunks, with and without a step that is shorter than the engine's sleep."""
    for stage_ns in (STAGE_NS, EMPTY_STEP_NS // 50):
        assert serve(workload(9, 150, 12, concurrency), limits(stages), stage_ns).finished.all()


@given(
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
    st.sampled_from([8, 64]),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 200), st.integers(1, 12)), min_size=1, max_size=9),
)
@settings(max_examples=examples(33))
def test_all_requests_end_and_their_tokens_are_in_order(
    stages: int, asynchronous: bool, caching: bool, budget: int, requests: list[tuple[int, int, int]]
) -> None:
    arrival, prompt, output = (np.array(column, np.int64) for column in zip(*sorted(requests)))
    load = make("some", arrival * EMPTY_STEP_NS, prompt, output)
    served = serve(load, limits(stages, asynchronous=asynchronous, caching=caching, budget=budget), STAGE_NS)
    assert served.finished.all()
    assert (served.first >= served.sent + stages * STAGE_NS).all()
    assert (served.last >= served.first + (output - 1) * stages * STAGE_NS).all()


@pytest.mark.parametrize("stages", range(2, 9))
def test_a_token_of_a_lone_request_takes_all_stages(stages: int) -> None:
    served = serve(workload(1, 40, 20), limits(stages))
    assert served.gaps.tolist() == [[stages * STAGE_NS, 1]] * 19


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_as_many_requests_as_stages_keep_all_stages_busy(stages: int) -> None:
    """Each has a batch of its own, so that a token leaves the pipeline every stage's time."""
    load = make("apart", np.arange(stages) * STAGE_NS // 2, np.full(stages, 60), np.full(stages, 40))
    served = serve(load, limits(stages))
    assert np.median(np.diff(np.sort(served.steps[:, 3])[stages:-stages])) == STAGE_NS


def test_an_engine_sleeps_a_millisecond_for_each_turn_that_it_waits_for() -> None:
    """Three stages of 10 us: two calls of the scheduler without a batch between the decodes of the only request."""
    served = serve(workload(1, 40, 20), limits(3), 10_000)
    assert np.median(served.gaps[:, 0]) == 2 * EMPTY_STEP_NS


def test_an_endpoint_answers_a_lone_request_of_a_pipeline() -> None:
    engine = limits(4)
    live = LiveEngine(Fleet((Replica(engine, constant_times(STAGE_NS, engine)),)))
    live.submit(range(30), 5, 0)
    emitted = live.advance(1 << 50)
    assert [token.is_last for token in emitted] == [False] * 4 + [True]


def test_a_loop_that_stops_names_what_is_left_and_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_loop, "run", lambda program, state: 2)
    engine = limits(3)
    with pytest.raises(InternalError) as raised:
        engines.simulate(
            workload(2, 40, 20), Fleet((Replica(engine, constant_times(STAGE_NS, engine)),), seed=7), compiled=False
        )
    assert str(raised.value) == (
        "internal error of presim: the serving loop stopped with 2 of 2 requests left, first number 0 of 40 prompt and "
        "20 output tokens (1 engines, 3 pipeline stages, seed 7); please report it with the command"
    )
