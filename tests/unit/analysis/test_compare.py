"""What changed between results adds up to the change of the whole."""

from __future__ import annotations

import msgspec
import pytest

from presim.analysis.compare import HOST, IDLE, compare
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.result import Result
from presim.trace.job import Job
from support import workloads


def result(gpu: str = "h100-sxm", host_factor: float = 1.0) -> Result:
    trace = workloads.llama_8b(steps=2, layers=3)
    return evaluate(Job.of(trace), choose_cluster(gpu=gpu, world_size=128), Options(host_factor=host_factor)).result


@pytest.fixture(scope="module")
def h100() -> Result:
    return result()


@pytest.mark.parametrize(("gpu", "host_factor"), [("b200", 1.0), ("h100-sxm", 30.0), ("mi300x", 1.0)])
def test_the_parts_add_up_to_both_step_times(h100: Result, gpu: str, host_factor: float) -> None:
    after = result(gpu, host_factor)
    (difference,) = compare([("a", h100), ("b", after)]).differences
    assert sum(part.before for part in difference.step_time) == pytest.approx(h100.step_time_s, rel=1e-9)
    assert sum(part.after for part in difference.step_time) == pytest.approx(after.step_time_s, rel=1e-9)
    assert sum(part.change for part in difference.step_time) == pytest.approx(difference.step_time_change_s, abs=1e-9)
    assert all(part.after >= 0 for part in difference.step_time)


def test_modules_have_their_parts_of_the_step_and_not_what_is_hidden(h100: Result) -> None:
    """With what waits for the host and idles, they add up to the step; all rows are wanted, so none is cut."""
    (difference,) = compare([("a", h100), ("b", result("b200"))]).differences
    waits_s = sum(part.before for part in difference.step_time if part.name in (HOST, IDLE))
    assert len(difference.modules) < 20
    assert sum(part.before for part in difference.modules) + waits_s == pytest.approx(h100.step_time_s, rel=1e-3)


def test_the_parts_of_memory_add_up_to_the_peak(h100: Result) -> None:
    (difference,) = compare([("a", h100), ("b", result("b200"))]).differences
    assert sum(part.before for part in difference.memory) == h100.memory.peak_allocated_bytes


def test_a_result_differs_in_nothing_from_itself(h100: Result) -> None:
    (difference,) = compare([("a", h100), ("b", h100)]).differences
    assert difference.settings == []
    assert difference.step_time_change_s == 0
    assert difference.speedup == 1
    assert difference.overlapping
    assert not any(part.change for part in difference.step_time)


def test_slow_hosts_show_as_waiting_for_them(h100: Result) -> None:
    """The largest change comes first."""
    (difference,) = compare([("a", h100), ("b", result(host_factor=1000.0))]).differences
    assert difference.step_time[0].name == HOST
    assert difference.step_time[0].change > 0.9 * (difference.step_time_change_s or 0)


def test_differing_settings_are_listed(h100: Result) -> None:
    other = msgspec.structs.replace(h100, policies={**h100.policies, "routing": "zipf:1"})
    (difference,) = compare([("a", h100), ("b", other)]).differences
    assert difference.settings == ["policy routing: none -> zipf:1"]


def test_a_comparison_needs_two_results(h100: Result) -> None:
    with pytest.raises(
        InputError, match=r"^a comparison needs two results, got 1; name another, or vary one with --with$"
    ):
        compare([("a", h100)])


def test_a_result_is_named_once(h100: Result) -> None:
    with pytest.raises(InputError, match=r"^a is named 2 times; name each result once$"):
        compare([("a", h100), ("a", h100)])
