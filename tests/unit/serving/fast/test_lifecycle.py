"""Engines that start, fail and go: what becomes of their requests, and when an autoscaler asks for how many."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.errors import InputError
from presim.serving.answer import fleet as fleets
from presim.serving.engines.engine import Fleet, Life, Limits, Replica, Scaling, constant_times
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload, make

STEP = 1_000_000
HOUR = 3600e9
LIMITS = Limits(num_gpu_blocks=60, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=300)
ENGINE = Replica(LIMITS, constant_times(STEP, LIMITS))


def life(mean_steps: float | None = None, scaling: Scaling | None = None, **more: Any) -> Life:
    times = {"start_s": 0.02, "detect_s": 0.001, **more}
    return Life(scaling, mtbf_h=None if mean_steps is None else mean_steps * STEP / HOUR, **times)


def serve(workload: Workload, how: Life, count: int = 3, compiled: bool = False, **more: Any) -> Served:
    return simulate(workload, Fleet((ENGINE,) * count, life=how, **more), compiled=compiled)


def random(seed: int, count: int = 25) -> Workload:
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.integers(0, 200 * STEP, count))
    return make("random", arrival, rng.integers(1, 120, count), rng.integers(1, 60, count))


@given(st.integers(0, 10_000), st.sampled_from(["round-robin", "least-loaded", "prefix", "session"]), st.booleans())
@settings(max_examples=20, deadline=None)
def test_who_resumes_gets_each_token_once(seed: int, router: Any, scaled: bool) -> None:
    scaling = Scaling(1, 3, target=0.5, interval_s=0.01, cooldown_s=0.03) if scaled else None
    workload = random(seed)
    served = serve(workload, life(100.0, scaling, drain_s=0.01), router=router, seed=seed)
    assert served.finished.all()
    assert served.gaps[:, 1].sum() + len(workload) == workload.output.sum()
    assert (served.first <= served.last).all()


@pytest.mark.parametrize("after", ["resume", "restart", "lose"])
def test_a_failed_engines_requests_resume_restart_or_are_lost(after: Literal["resume", "restart", "lose"]) -> None:
    """Whoever was on it has its next token only after the failure was seen; nothing comes twice on `resume`."""
    workload = random(1)
    served = serve(workload, life(60.0, after_failure=after))
    failures = served.events[served.events[:, 2] == serving_state.FAILED]
    hit = served.moves > 0
    assert len(failures) > 0
    assert hit.any()
    assert (served.last[hit & served.finished] > failures[0, 0] + STEP).all()
    assert (served.redone == 0) == (after == "lose")
    if after == "lose":
        assert set(served.status.tolist()) == {serving_state.FINISHED, serving_state.LOST}
        assert ((served.status == serving_state.LOST) == hit).all()
    else:
        assert served.finished.all()
    if after == "restart":
        assert served.gaps[:, 1].sum() + len(workload) >= workload.output.sum()


def test_a_failed_engine_is_away_as_long_as_it_starts() -> None:
    served = serve(random(2), life(60.0), count=1)
    changes = served.events[:, [0, 2]].tolist()[1:]
    for (down, what), (again, next_) in zip(changes[::2], changes[1::2]):
        assert (what, next_) == (serving_state.FAILED, serving_state.SERVING)
        assert again - down == 20 * STEP
    assert served.finished.all()


def test_a_prefill_that_no_engine_lives_long_enough_for_is_given_up() -> None:
    served = serve(make("long", np.zeros(1), np.array([200]), np.array([5])), life(0.01, start_s=0.0, detect_s=0.0))
    assert served.status.tolist() == [serving_state.LOST]


def test_an_autoscaler_asks_for_engines_and_lets_them_go() -> None:
    """12 requests with a target of 2 an engine ask for 6: the 3 that there may be start, and later one stays."""
    scaling = Scaling(1, 3, target=0.5, interval_s=0.01, cooldown_s=0.05)
    late = np.array([*np.zeros(12), 400 * STEP, 401 * STEP])
    served = serve(make("burst", late, np.full(14, 20), np.full(14, 100)), life(None, scaling), router="least-loaded")
    events = served.events.tolist()
    assert events[:3] == [[0, 0, serving_state.SERVING], [0, 1, serving_state.ABSENT], [0, 2, serving_state.ABSENT]]
    assert events[3:7] == [
        [10 * STEP, 1, serving_state.STARTING],
        [10 * STEP, 2, serving_state.STARTING],
        [30 * STEP, 1, serving_state.SERVING],
        [30 * STEP, 2, serving_state.SERVING],
    ]
    assert [event[2] for event in events[7:9]] == [serving_state.ABSENT, serving_state.ABSENT]
    assert served.finished.all()
    found = fleets.summary(served, gpus=2)
    assert found["most_engines"] == 3
    assert 2 < found["mean_gpus"] < 6
    assert found["gpu_hours"] == pytest.approx(found["mean_gpus"] * (served.last.max() - served.sent.min()) / HOUR)


def test_an_engine_that_drains_takes_no_more_and_finishes_what_it_has() -> None:
    scaling = Scaling(1, 2, target=0.5, interval_s=0.01, cooldown_s=0.0)
    arrival = np.array([0, 0, 0, 0, 31, 32]) * STEP
    output = np.array([50, 50, 50, 200, 10, 150])
    load = make("drain", arrival, np.full(6, 10), output)
    served = serve(load, life(None, scaling), count=2, router="least-loaded")
    begins = {int(e): int(t) for t, e, what in served.events.tolist() if what == serving_state.DRAINING}
    ends = {int(e): int(t) for t, e, what in served.events.tolist() if what == serving_state.ABSENT and t > 0}
    assert begins
    for engine, begin in begins.items():
        mine = served.replica == engine
        assert (served.sent[mine] <= begin).all()
        assert ends[engine] == served.last[mine].max()
    assert served.moves.sum() == 0
    hurried = serve(load, life(None, scaling, drain_s=0.005), count=2, router="least-loaded")
    assert hurried.moves.sum() > 0
    assert hurried.finished.all()


def test_prefill_and_decode_engines_may_fail() -> None:
    workload = random(4)
    roles = tuple(dataclasses.replace(ENGINE, role=role) for role in ("prefill", "prefill", "decode", "decode"))
    served = simulate(workload, Fleet(roles, life=life(80.0), kv_token_bytes=1, port_bytes_per_s=1e5), compiled=False)
    assert served.finished.all()
    assert served.moves.sum() > 0
    assert served.gaps[:, 1].sum() + len(workload) == workload.output.sum()


def test_ranks_that_step_together_fail_together() -> None:
    shared = dataclasses.replace(constant_times(STEP, LIMITS), shared_ns=np.arange(65.0))
    group = tuple(dataclasses.replace(ENGINE, times=shared, group=place // 2) for place in range(4))
    served = simulate(random(5), Fleet(group, life=life(80.0)), compiled=False)
    assert served.finished.all()
    assert served.moves.sum() > 0
    assert set(served.events[:, 1].tolist()) == {0, 2}


def test_compiled_and_uncompiled_say_the_same() -> None:
    how = life(60.0, Scaling(1, 3, "queue", 1.0, 0.01, 0.02), drain_s=0.004)
    plain, compiled, again = (serve(random(6, 60), how, compiled=each) for each in (False, True, True))
    for column in ("sent", "first", "last", "status", "replica", "moves", "events", "steps", "gaps"):
        assert getattr(plain, column).tolist() == getattr(compiled, column).tolist()
        assert getattr(again, column).tobytes() == getattr(compiled, column).tobytes()
    assert plain.moves.sum() > 0


def test_impossible_lives_are_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="from 3 to 2 engines"):
        Scaling(3, 2)
    with pytest.raises(InputError, match="the MTBF above 0"):
        Life(mtbf_h=0.0)
    apart = (dataclasses.replace(ENGINE, role="prefill"), dataclasses.replace(ENGINE, role="decode"))
    with pytest.raises(InputError, match="leave out --autoscale"):
        simulate(random(1), Fleet(apart, life=life(None, Scaling(1, 2))))
