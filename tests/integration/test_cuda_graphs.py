"""CUDA graphs: a replay has the captured work with its operators, modules and phases."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from presim.trace.schema import Kind, Phase
from presim.trace.signatures import Kernel
from support.captured import Job, run

pytestmark = pytest.mark.torch_cuda


@pytest.fixture(scope="module")
def job() -> Job:
    return run("replayed.py")


def work(job: Job, step: int) -> Counter[tuple[object, ...]]:
    """The work of a step before the optimizer: signature, operator, phase and module of each launch."""
    bounds = job.trace.steps()[step]
    columns = job.trace.columns
    chosen = np.arange(bounds.start, bounds.stop)
    chosen = chosen[(columns["kind"][chosen] == Kind.WORK) & (columns["phase"][chosen] != Phase.OPTIMIZER)]
    names = ("signature", "operator", "phase", "scope")
    return Counter(tuple(int(columns[name][index]) for name in names) for index in chosen)


def test_a_replay_repeats_its_capture(job: Job) -> None:
    """Two replays are the same, and the same as the step without a graph except for zeroing gradients."""
    first, second, third = (work(job, step) for step in range(3))
    assert second == third
    assert sum((second & first).values()) >= 0.8 * sum(second.values())


def test_no_kernel_of_a_replay_is_known_by_name_only(job: Job) -> None:
    assert not [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]


def test_phases_and_modules_of_a_replay_are_those_of_the_capture(job: Job) -> None:
    """Two products forward and three backward, because the batch needs no gradient."""
    product = 2 * 64 * 256 * 512
    assert job.gemm_flops(Phase.FORWARD) == 2 * product
    assert job.gemm_flops(Phase.BACKWARD) == 3 * product
    assert job.gemm_flops(scope="0") == 2 * product
    assert job.gemm_flops(scope="2") == 3 * product


def test_the_batch_is_counted_per_step_though_replays_call_no_module() -> None:
    assert run("replayed.py").trace.manifest.batch["samples"] == 64
