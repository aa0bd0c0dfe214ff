"""Environments and judges: files of pools with them, their workers, their phases and their idle GPUs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from presim.errors import InputError
from presim.post_training.answer_times import AnswerTimes
from presim.post_training.filtering import draw
from presim.post_training.idle_time import idle_times
from presim.post_training.placement_file import placement_fields
from presim.post_training.rl_answer import answer
from presim.post_training.rl_job import Placement, RlJob
from presim.post_training.rl_loop import simulate
from presim.post_training.rollout import generate
from presim.post_training.service_pools import ServicePool
from presim.post_training.turns import Turns
from support import rl_jobs

FILE = """
[pools.all]
gpus = 24
roles = ["actor", "rollout"]
[pools.sandbox]
gpus = 0
roles = ["environment"]
turns = 4
seconds = "2~0.8"
tokens = 300
workers = 64
[pools.judges]
gpus = 8
roles = ["judge"]
seconds = 3
"""


def _job(turns: Turns, **fields: object) -> RlJob:
    made = rl_jobs.job(is_colocated=True, steps=1)
    return dataclasses.replace(made, batch=dataclasses.replace(made.batch, turns=turns), **fields)


def _rollout_s(turns: Turns) -> float:
    job = _job(turns)
    return float(generate(draw(job.batch, 0, 8, np.random.default_rng(0)), job, 0).end_s.max())


def test_an_environment_and_a_judge_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pools.toml"
    file.write_text(FILE)
    fields = placement_fields(str(file))
    assert fields["service_pools"] == (ServicePool("sandbox", "environment", 0), ServicePool("judges", "judge", 8))
    assert (fields["placement"], fields["gpus"], fields["turns"], fields["tool_workers"]) == ("colocated", 32, 4, 64)
    assert (fields["tool_seconds"], fields["tool_tokens"], fields["reward_seconds"]) == ("2~0.8", 300, 3.0)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            ('["environment"]', '["environment", "critic"]'),
            "the environment is on the pool 'sandbox' beside critic; give it a pool of its own (gpus = 0: it has none "
            "of the cluster's)",
        ),
        (("turns = 4\n", ""), "the environment of the pool 'sandbox' answers between turns; add turns = 2 or more"),
        (
            ("seconds = 3\n", "turns = 3\n"),
            "the judge of the pool 'judges' has seconds of an answer and workers, and no turns and tokens; write e.g. "
            'seconds = "3~0.5" and workers = 64',
        ),
        (
            ('"rollout"]\n', '"rollout"]\nturns = 2\n'),
            "the pool 'all' has turns, a field of an environment or a judge; leave it out",
        ),
        (("judge", "juge"), "no role is called 'juge'; did you mean judge?"),
    ],
)
def test_what_an_environment_cannot_have_is_refused(changed: tuple[str, str], sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "pools.toml"
    file.write_text(FILE.replace(*changed, 1) if changed[0] != "judge" else FILE.replace('"judge"', '"juge"'))
    with pytest.raises(InputError) as error:
        placement_fields(str(file))
    assert str(error.value) == sentence


def test_calls_wait_for_workers_of_the_environment() -> None:
    """32 responses call twice for 5 s: 64 calls over 2 workers take 160 s, and as many workers as calls 10 s."""
    free_s, wide_s, narrow_s = (_rollout_s(Turns(3, AnswerTimes(5.0), workers=count)) for count in (0, 64, 2))
    assert wide_s == free_s
    assert 160 <= narrow_s < 160 + free_s


def test_one_worker_answers_in_the_order_of_calls() -> None:
    """A queue with one worker is never idle while a call waits: the rollout ends with the last answer's turn."""
    single_s = _rollout_s(Turns(2, AnswerTimes(3.0), workers=1))
    assert 32 * 3.0 < single_s < 32 * 3.0 + _rollout_s(Turns(2))


def test_service_pools_fill_the_step_and_their_free_workers_are_idle() -> None:
    pools = (ServicePool("sandbox", "environment", 2), ServicePool("judge", "judge"))
    turns = Turns(2, AnswerTimes(5.0), workers=64)
    placement = Placement(4, 4, service_pools=pools)
    job = _job(turns, placement=placement, reward=AnswerTimes(1.0), reward_workers=8)
    run = simulate(job, rl_jobs.prices())
    step = run.steps[0]
    assert placement.gpus == 6
    for label in ("environment sandbox", "judge"):
        spans = [span for span in run.spans if span.pool == label]
        assert sum(span.seconds for span in spans) == pytest.approx(step.end_s - step.start_s)
    idle = idle_times(run.spans, 1, step.end_s, placement, 0.0)
    by_cause = {(entry.pool, entry.cause): entry.seconds for entry in idle}
    rollout_s = next(span.seconds for span in run.spans if span.phase == "environment")
    waits_s = by_cause["environment sandbox", "environment waits for calls"]
    assert waits_s == pytest.approx(rollout_s - 32 * 5.0 / 64)
    assert not any(pool == "judge" for pool, _ in by_cause), "none of the cluster's GPUs are its own"
    shown = answer(rl_jobs.built(job), run)
    assert [(pool.name, pool.gpus, pool.plan) for pool in shown.pools[1:]] == [
        ("environment sandbox", 2, "1 answers a response, 5 s an answer of 0 tokens, 64 at once"),
        ("judge", 0, "1 s an answer, 8 at once"),
    ]
