"""One controller's batches: padded tensors of each phase take time by their bytes, and no phase of a step vanishes."""

from __future__ import annotations

import dataclasses

import pytest

from presim.post_training.controller import ControllerSeconds, controller_seconds
from presim.post_training.rl_loop import simulate
from presim.serving.workloads.generate import Lengths
from support import rl_jobs

_SEND_S, _RECEIVE_S = 3.0e-9, 1.2e-9


def test_tensors_are_padded_to_the_longest_prompt_and_response() -> None:
    job = rl_jobs.job(prompts=4, samples=2, response=Lengths(200, 0.6, longest=1000))
    trainer = dataclasses.replace(job.trainer, has_reference=True)
    seconds = controller_seconds("verl", job.batch, trainer)
    tokens_bytes, real_bytes = 8 * (3 * 1064 + 2 * 1000 + 64) * 8, 8 * 1000 * 4
    assert seconds.rollout_s == pytest.approx(tokens_bytes * _RECEIVE_S)
    assert seconds.old_s == pytest.approx(tokens_bytes * _SEND_S + 2 * real_bytes * _RECEIVE_S)
    assert seconds.reference_s == pytest.approx((tokens_bytes + real_bytes) * _SEND_S + real_bytes * _RECEIVE_S)
    assert seconds.update_s == pytest.approx((tokens_bytes + 6 * real_bytes) * _SEND_S)


def test_replayed_routing_passes_with_every_tensor() -> None:
    """An int16 for each expert that a token chose in each layer, of prompts and responses."""
    job = rl_jobs.job(prompts=4, samples=2, response=Lengths(200, 0.6, longest=1000))
    plain, replayed = (controller_seconds("verl", job.batch, job.trainer, values) for values in (0, 48 * 8))
    routed_bytes = 8 * 1064 * 48 * 8 * 2
    assert replayed.update_s - plain.update_s == pytest.approx(routed_bytes * _SEND_S)
    assert replayed.rollout_s - plain.rollout_s == pytest.approx(routed_bytes * _RECEIVE_S)


def test_without_a_controller_nothing_passes_through_it() -> None:
    job = rl_jobs.job()
    assert controller_seconds("none", job.batch, job.trainer) == ControllerSeconds()


def test_a_step_is_longer_by_what_the_controller_takes() -> None:
    job = rl_jobs.job(is_colocated=True, steps=1)
    seconds = ControllerSeconds(rollout_s=1.0, old_s=2.0, reference_s=3.0, update_s=4.0)
    plain, slow = (simulate(job, rl_jobs.prices(**fields)) for fields in ({}, {"controller": seconds}))
    assert slow.steps[0].end_s - plain.steps[0].end_s == pytest.approx(10.0)
    assert sum(span.seconds for span in slow.spans if span.phase == "controller") == pytest.approx(10.0)
