"""A re-scaled capture compared with a capture of that size."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware import choose_cluster
from presim.trace.job import Job
from presim.trace.rescale import at_world_size
from presim.trace.schema import Kind, Phase, Trace
from support.captured import run

pytestmark = pytest.mark.torch_cuda


def from_first_forward(trace: Trace, name: str) -> NDArray[np.generic]:
    """A column of device work and steps without set-up, where DistributedDataParallel has a tensor per rank.

    Blocks of memory are left out: when Python's garbage collection frees them is not the same in every run.
    """
    first = int(np.argmax(trace.columns["phase"] == Phase.FORWARD))
    return trace.columns[name][first:][trace.mask(Kind.WORK, Kind.COLLECTIVE, Kind.STEP)[first:]]


def asked(trace: Trace) -> list[object]:
    return [
        trace.signatures[index] if index >= 0 else None for index in from_first_forward(trace, "signature").tolist()
    ]


@pytest.mark.long
def test_gpt2_with_ddp_on_8_gpus_is_rescaled_to_32() -> None:
    """Device work and the step time without host time are the same."""
    small, large = run("gpt2_ddp.py", world_size=8).trace, run("gpt2_ddp.py", world_size=32).trace
    (scaled,), speak, _ = at_world_size([small], {0: range(1, 8)}, 32)
    assert speak == {0: list(range(1, 32))}
    assert [group.ranks for group in scaled.manifest.groups] == [group.ranks for group in large.manifest.groups]
    for name in ("kind", "phase", "stream", "scope", "operator"):
        assert np.array_equal(from_first_forward(scaled, name), from_first_forward(large, name)), name
    assert asked(scaled) == asked(large)
    cluster, options = choose_cluster(gpu="h100-sxm", world_size=32), Options.of(host_time=False)
    times = [evaluate(Job.of(one), cluster, options).result.step_time_s for one in (scaled, large)]
    assert times[0] == pytest.approx(times[1], rel=1e-3)
