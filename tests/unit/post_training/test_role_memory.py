"""A phase that does not fit is refused, with by how much and what would help."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.post_training.role_memory import TrainerBytes, check, misfit_notes, phases_of
from support import rl_jobs

GIB = 1 << 30
HELD = TrainerBytes(4 * GIB, 8 * GIB, 2 * GIB, 20 * GIB, GIB)


def test_roles_of_separate_pools_do_not_share_memory() -> None:
    phases = check(rl_jobs.job(), HELD)
    assert [(phase.pool, phase.phase) for phase in phases] == [("rollout", "rollout"), ("training", "update")]
    assert phases[1].total_bytes == 35 * GIB
    assert all(phase.fits for phase in phases)


def test_an_engine_beside_the_optimizer_is_refused_with_the_offload_that_helps() -> None:
    """The engine of the test takes 0.92 of the GPU."""
    with pytest.raises(InputError) as error:
        check(rl_jobs.job(is_colocated=True), HELD)
    assert str(error.value).startswith("the rollout does not fit all GPUs: ")
    assert str(error.value).endswith(
        "too many; --offload optimizer,parameters,reference frees 14.0 GiB of it; --force predicts it anyway"
    )
    job = rl_jobs.job(is_colocated=True)
    trainer = dataclasses.replace(job.trainer, offloads=frozenset({"optimizer", "parameters", "reference"}))
    assert all(phase.fits for phase in check(dataclasses.replace(job, trainer=trainer), HELD))


def test_an_update_that_is_too_large_is_refused() -> None:
    with pytest.raises(InputError) as error:
        check(rl_jobs.job(), dataclasses.replace(HELD, working=70 * GIB))
    assert str(error.value).endswith(
        "5.8 too many; use fewer --micro-tokens, a larger --cp, --tp or --pp, or more training GPUs; "
        "--force predicts it anyway"
    )


def test_a_job_that_is_predicted_anyway_says_what_does_not_fit() -> None:
    job, state = rl_jobs.job(), dataclasses.replace(HELD, working=70 * GIB)
    (sentence,) = misfit_notes(job, state, phases_of(job, state))
    assert sentence.startswith("This job cannot run: the update does not fit training: 85.0 GiB (")
    assert sentence.endswith(
        "5.8 too many; use fewer --micro-tokens, a larger --cp, --tp or --pp, or more training GPUs."
    )
    assert misfit_notes(job, HELD, phases_of(job, HELD)) == []


def test_an_engine_that_does_not_sleep_is_beside_the_update() -> None:
    job = rl_jobs.job(is_colocated=True)
    everything = frozenset({"optimizer", "parameters", "reference"})
    job = dataclasses.replace(job, trainer=dataclasses.replace(job.trainer, offloads=everything))
    assert "KV cache" not in check(job, HELD)[1].parts
    with pytest.raises(InputError, match=r"the update does not fit all GPUs: .*; --sleep-level 2 frees \d+\.\d GiB"):
        check(dataclasses.replace(job, sleep_level=0), HELD)


SIZES = st.integers(0, 60 * GIB)


@given(st.tuples(*[SIZES] * 7), st.booleans(), st.sets(st.sampled_from(("optimizer", "parameters", "reference"))))
def test_no_phase_is_above_the_capacity_without_a_refusal(
    sizes: tuple[int, ...], is_colocated: bool, offloads: set[str]
) -> None:
    job = rl_jobs.job(is_colocated=is_colocated)
    trainer = dataclasses.replace(job.trainer, offloads=frozenset(offloads))  # type: ignore[arg-type]
    try:
        phases = check(dataclasses.replace(job, trainer=trainer), TrainerBytes(*sizes))
    except InputError as error:
        assert "too many" in str(error)
    else:
        assert all(sum(phase.parts.values()) <= phase.capacity_bytes for phase in phases)
