"""Which host time counts, from traces to a result."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.hardware.host import TYPICAL_FACTOR
from presim.trace.job import Job
from presim.trace.schema import Trace
from support import workloads
from support.products import products


def trace(disturbed_ns: int = 0) -> Trace:
    """Of the reference host, which was disturbed once in the third step."""
    made = workloads.launch_bound(steps=3)
    host_ns = made.columns["host_ns"].astype(np.int64)
    host_ns[made.steps()[2].start + 50] += disturbed_ns
    manifest = msgspec.structs.replace(made.manifest, reference_host=True)
    return dataclasses.replace(made, columns={**made.columns, "host_ns": host_ns}, manifest=manifest)


def evaluated(captured: Trace, gpu: str, factor: float | None = None) -> Evaluation:
    return evaluate(Job.of(captured), choose_cluster(gpu=gpu, world_size=1), Options(host_factor=factor))


@pytest.mark.parametrize(
    ("gpu", "whose"),
    [("a100-80gb-sxm", "hosts of dgx-a100"), ("h100-sxm", "hosts of hgx-h100"), ("l4", "a typical GPU")],
)
def test_host_time_counts_as_the_node_type_says(gpu: str, whose: str) -> None:
    factor = choose_cluster(gpu=gpu, world_size=1).node.host_factor or TYPICAL_FACTOR
    item = evaluated(trace(), gpu)
    assert item.result.step_time_s == evaluated(trace(), gpu, factor).result.step_time_s
    assert any(f"scaled by {factor:g}, as for {whose}" in note for note in item.result.notes)


def test_a_factor_that_is_given_goes_before_the_node_s() -> None:
    item = evaluated(trace(), "a100-80gb-sxm", 3.0)
    assert any("scaled by 3, as --host-factor says" in note for note in item.result.notes)


def test_what_disturbed_the_capture_does_not_count() -> None:
    quiet, busy = trace(), trace(disturbed_ns=30_000_000)
    expected = evaluated(quiet, "h100-sxm").result.steps.times_s
    assert evaluated(busy, "h100-sxm").result.steps.times_s == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("share", "said"), [(0.0, False), (0.2, False), (0.6, True)])
def test_a_busy_machine_is_named_where_what_it_cost_is_not_known(share: float, said: bool) -> None:
    made = trace()
    captured = dataclasses.replace(made, manifest=msgspec.structs.replace(made.manifest, neighbours=share))
    notes = evaluated(captured, "h100-sxm").result.notes
    assert any("used 60.0% of this machine's CPUs" in note and "may wait less" in note for note in notes) == said
    assert not any("machine's CPUs" in note for note in evaluated(captured, "h100-sxm", 0.0).result.notes)


@pytest.mark.parametrize("slower", [1.0, 1.1, 2.5])
def test_a_busy_machine_whose_cost_was_divided_out_makes_no_wait_shorter(slower: float) -> None:
    made = products([slower] * 200)
    captured = dataclasses.replace(made, manifest=msgspec.structs.replace(made.manifest, neighbours=0.6))
    named = [note for note in evaluated(captured, "h100-sxm").result.notes if "machine" in note]
    assert len(named) == (slower > 2)
    assert all("used 60.0% of this machine's CPUs" in note and "divided by this factor" in note for note in named)


def test_a_machine_that_was_slower_because_of_others_makes_no_difference_and_is_named() -> None:
    quiet, busy = evaluated(products([1.0] * 200), "h100-sxm"), evaluated(products([2.5] * 200), "h100-sxm")
    assert busy.result.step_time_s == pytest.approx(quiet.result.step_time_s, rel=1e-3)
    assert any("took 2.5 times as long as on an idle machine" in note for note in busy.result.notes)
    assert not any("Other processes" in note for note in busy.result.notes)
    assert not any("idle machine" in note for note in quiet.result.notes)
