"""A script of TRL runs as it is: rollout, log-probabilities and update are phases of its step."""

from __future__ import annotations

import pytest

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
