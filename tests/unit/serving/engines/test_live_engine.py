"""The live engine gives the same times as the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from presim.errors import InputError
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.live_engine import LiveEngine
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.workloads.workload import make

STEP = 1_000_000
LIMITS = Limits(num_gpu_blocks=60, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=400)
FLEET = Fleet((Replica(LIMITS, constant_times(STEP, LIMITS)),) * 2, "least-loaded", input_ns=1000, output_ns=500)


def test_requests_one_by_one_are_served_as_those_of_a_workload() -> None:
    rng = np.random.default_rng(0)
    arrival, prompt, output = np.sort(rng.integers(0, 40 * STEP, 30)), rng.integers(1, 150, 30), rng.integers(1, 20, 30)
    served = simulate(make("all", arrival, prompt, output), FLEET, compiled=False)
    engine, tokens = LiveEngine(FLEET), []
    for item in range(30):
        tokens += engine.advance(int(arrival[item]) - 1)
        engine.submit([item * 1000 + place for place in range(prompt[item])], int(output[item]), int(arrival[item]))
    tokens += engine.advance(1 << 60)
    assert engine.next_event_ns is None
    for item in range(30):
        mine = [token.when_ns for token in tokens if token.request == item]
        assert len(mine) == output[item]
        assert (mine[0], mine[-1]) == (served.first[item], served.last[item])


def test_equal_prompts_are_found_in_the_cache() -> None:
    engine = LiveEngine(Fleet((FLEET.replicas[0],)))
    prompt = list(range(100))
    for _ in range(2):
        engine.submit(prompt, 2, 0 if engine.next_event_ns is None else engine.next_event_ns)
        engine.advance(1 << 60)
    assert engine.state.hits == [0, 96]


def test_an_aborted_request_ends_with_its_next_token() -> None:
    engine = LiveEngine(FLEET)
    item = engine.submit([1, 2, 3], 300, 0)
    first = engine.advance(3 * STEP)
    engine.abort(item)
    rest = engine.advance(1 << 60)
    assert len(rest) <= 3
    assert [token.is_last for token in [*first, *rest]].count(True) == 1


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="exceed max_model_len 400"):
        LiveEngine(FLEET).submit([1] * 399, 10, 0)
