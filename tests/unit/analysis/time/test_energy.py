"""Energy: bounded by idle and limit, additive over classes of work, and monotone in what runs."""

from __future__ import annotations

import msgspec
import pytest

from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.hardware.power import shares
from presim.result import Energy, Result
from presim.trace.job import Job
from support import workloads


@pytest.fixture(scope="module")
def result() -> Result:
    return evaluate(
        Job.of(workloads.llama_8b(steps=2, layers=3)), choose_cluster(gpu="h100-sxm", world_size=128)
    ).result


def of(result: Result) -> Energy:
    assert result.energy is not None
    return result.energy


def test_every_class_has_ends_around_its_share_and_a_source() -> None:
    for share in shares().values():
        assert 0 <= share.low <= share.share <= share.high <= 1
        assert share.source


def test_power_is_between_idle_and_limit(result: Result) -> None:
    found = of(result)
    assert result.step_time_s is not None
    assert shares()["idle"].low * found.limit_watts <= found.watts <= found.limit_watts == 700
    assert found.joules == pytest.approx(found.watts * result.step_time_s)
    assert found.joules_low < found.joules < found.joules_high <= found.limit_watts * result.step_time_s


def test_the_parts_add_up(result: Result) -> None:
    found = of(result)
    assert sum(part.joules for part in found.parts) == pytest.approx(found.joules)
    assert sum(part.seconds for part in found.parts) == pytest.approx(result.step_time_s)


def test_published_power_of_trainings_is_within_the_range(result: Result) -> None:
    """OLMo on H100 drew 85 % of the limit in steps and 15 % between them (arXiv 2503.05804); neither was fitted."""
    found = of(result)
    assert found.joules_low < 0.85 * found.limit_watts * found.joules / found.watts < found.joules_high
    assert shares()["idle"].low < 0.15 < shares()["idle"].high


def test_a_job_that_waits_for_its_host_draws_less() -> None:
    cluster = choose_cluster(gpu="h100-sxm", world_size=1)
    slow = of(evaluate(Job.of(workloads.launch_bound()), cluster).result)
    assert slow.watts < 0.5 * slow.limit_watts
    assert {part.name for part in slow.parts} == {"latency", "idle"}


def test_without_a_power_limit_there_is_no_energy() -> None:
    plain = choose_cluster(gpu="h100-sxm", world_size=1)
    cluster = msgspec.structs.replace(plain, gpu=msgspec.structs.replace(plain.gpu, power_w=0.0))
    assert evaluate(Job.of(workloads.launch_bound()), cluster).result.energy is None
