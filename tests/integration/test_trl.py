"""A script of TRL runs as it is: rollout, log-probabilities and update are phases of its step."""

from __future__ import annotations

import pytest

from presim.post_training.rl_loop import simulate
from support import rl_jobs
from support.captured import run

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("trl", "datasets", "accelerate")]
TOKENS = 8


def test_rollout_log_probabilities_and_update_are_phases() -> None:
    """Each generated token after the first is a run of a loop; log-probabilities are another, before the update."""
    result = run("trl_grpo.py", "--tokens", str(TOKENS), steps=0).result
    phases = {(phase.kind, phase.line.rpartition("/")[2].partition(":")[0]): phase for phase in result.steps.phases}
    assert 1 < phases["loop", "utils.py"].runs <= TOKENS
    assert phases["loop", "grpo_trainer.py"].runs >= 1
    assert phases["update", "trainer.py"].seconds > 0
    assert sum(phase.seconds for phase in phases.values()) == pytest.approx(result.step_time_s)


def test_trls_own_loop_has_the_order_of_phases_of_presim_rl() -> None:
    """The controller of TRL, run as it is, generates, scores and updates in the order of a simulated step."""
    names = {"utils.py": "rollout", "grpo_trainer.py": "log-probabilities", "trainer.py": "update"}
    result = run("trl_grpo.py", "--tokens", str(TOKENS), steps=0).result
    files = [phase.line.rpartition("/")[2].partition(":")[0] for phase in result.steps.phases]
    captured = list(dict.fromkeys(names[file] for file in files if file in names))
    job = rl_jobs.job(is_colocated=True, steps=1)
    phases = [span.phase.split()[-1] for span in simulate(job, rl_jobs.prices()).spans]
    assert captured == [phase for phase in dict.fromkeys(phases) if phase in names.values()]
    assert captured == list(names.values())
