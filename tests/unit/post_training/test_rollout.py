"""Which engine generates a response: that with the fewest, or its part of the batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.post_training.filtering import draw
from presim.post_training.rollout import consecutive_order, generate
from presim.serving.workloads.generate import Lengths
from support import rl_jobs


@given(st.integers(1, 60), st.integers(1, 9))
def test_a_round_robin_in_this_order_gives_each_engine_its_part(responses: int, engines: int) -> None:
    order = consecutive_order(responses, engines)
    assert sorted(order) == list(range(responses))
    parts = [part.tolist() for part in np.array_split(np.arange(responses), engines)]
    assert [np.flatnonzero(order % engines == engine).tolist() for engine in range(engines)] == parts


@pytest.mark.parametrize(("assignment", "groups_of_engine"), [("balanced", 8), ("consecutive", 4)])
def test_engines_of_consecutive_parts_have_whole_groups(assignment: str, groups_of_engine: int) -> None:
    job = rl_jobs.job(response=Lengths(50), assignment=assignment)
    responses = draw(job.batch, 0, job.batch.prompts, np.random.default_rng(0))
    window = generate(responses, job, 0)
    for engine in range(job.replicas):
        assert len(np.unique(responses.group[window.served.replica == engine])) == groups_of_engine
