"""Structured output: requests wait for their grammar, and sampling waits for the mask of allowed tokens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from presim.errors import InputError
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.live_engine import LiveEngine
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import make

STEP = 1_000_000


def fleet(asynchronous: bool, mask_ns: float = 0.0, **changes: int) -> Fleet:
    limits = Limits(
        200, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=400, async_scheduling=asynchronous, **changes
    )
    times = constant_times(STEP, limits)
    sampling = np.full(len(times.head_ns), STEP / 4)
    times = dataclasses.replace(
        times, token_ns=times.token_ns * 0.75, head_ns=sampling, mask_ns=mask_ns, host_ns=STEP / 10
    )
    return Fleet((Replica(limits, times),))


def serve(grammar_ns: list[int], asynchronous: bool, mask_ns: float = 0.0, output: int = 20) -> Served:
    count = len(grammar_ns)
    load = make(
        "some", np.zeros(count, np.int64), np.full(count, 8), np.full(count, output), grammar_ns=np.array(grammar_ns)
    )
    return simulate(load, fleet(asynchronous, mask_ns), record=True, compiled=False)


def test_a_request_waits_for_its_grammar_and_others_go_first() -> None:
    served = serve([5 * STEP, -1, -1], True)
    assert served.scheduled[1:].tolist() == [0, 0]
    assert 5 * STEP <= served.scheduled[0] < 7 * STEP
    assert served.finished.all()


def test_an_engine_without_other_work_wakes_when_the_grammar_is_there() -> None:
    served = serve([5 * STEP], True)
    assert served.scheduled.tolist() == [5 * STEP]


def test_asynchronous_scheduling_hides_a_short_mask_behind_the_forward_pass() -> None:
    """The mask needs the tokens of the step before; the forward pass, 0.75 of a step here, runs meanwhile."""
    hidden, shown = serve([0], True, 0.7 * STEP), serve([0], True, 0.85 * STEP)
    steady = [int(np.median(np.diff(each.steps[5:15, serving_state.LOG_END]))) for each in (hidden, shown)]
    assert steady == [STEP, STEP + STEP // 10]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_mask_that_takes_longer_than_the_forward_pass_holds_sampling_up(asynchronous: bool) -> None:
    short, long = serve([0], asynchronous, 0.0), serve([0], asynchronous, 3.0 * STEP)
    gaps = [int(np.median(np.diff(each.steps[5:15, serving_state.LOG_END]))) for each in (short, long)]
    assert gaps[1] >= 3 * STEP + STEP // 4
    assert gaps[0] < 2 * STEP


def test_the_mask_is_paid_for_each_structured_request() -> None:
    one, four = (serve([0] * count, False, float(STEP)) for count in (1, 4))
    gaps = [int(np.median(np.diff(each.steps[5:15, serving_state.LOG_END]))) for each in (one, four)]
    assert gaps[1] - gaps[0] == 3 * STEP


def test_a_request_of_the_endpoint_waits_for_its_grammar() -> None:
    engine = LiveEngine(fleet(True))
    engine.submit([1, 2, 3], 2, 0, grammar_ns=4 * STEP)
    first = engine.advance(1 << 60)[0]
    assert first.when_ns >= 5 * STEP


def test_engines_of_several_stages_are_refused() -> None:
    load = make("one", np.zeros(1), np.ones(1), np.ones(1), grammar_ns=np.zeros(1, np.int64))
    with pytest.raises(InputError, match="one pipeline stage"):
        simulate(load, fleet(True, pipeline_parallel_size=2), compiled=False)
