"""What a published run waited for between steps, and its recipe does not."""

from __future__ import annotations

import dataclasses

from presim.engine.simulation_options import Options
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.schema import Kind, Trace
from presim_study.between_steps import longer_between_steps
from presim_study.plan import Plan
from presim_study.runs import as_published, simulate, step_s
from support import workloads


def test_each_step_ends_so_much_later_and_nothing_else_does() -> None:
    trace = workloads.llama_8b(steps=3, layers=2)
    longer = longer_between_steps(trace, 7_000_000)
    added = longer.columns["host_ns"].astype(int) - trace.columns["host_ns"].astype(int)
    assert set(added[trace.mask(Kind.STEP)].tolist()) == {7_000_000}
    assert not added[~trace.mask(Kind.STEP)].any()
    assert _rest(longer) == _rest(trace)


def test_a_plan_says_how_long_and_only_such_a_plan() -> None:
    trace = workloads.llama_8b(steps=3, layers=2)
    plan = Plan("recipe.py", (), choose_cluster(gpu="h100-sxm", nodes=16, gpus_per_node=8))
    assert as_published(plan, trace) is trace
    longer = as_published(dataclasses.replace(plan, between_steps_ns=7_000_000), trace)
    times = [simulate(plan, [each], Options(host_factor=2.0)).result.step_time_s or 0.0 for each in (trace, longer)]
    assert times[1] > times[0] > 0


def test_no_step_is_over_before_its_input_came() -> None:
    trace = workloads.llama_8b(steps=3, layers=2)
    plan = Plan("recipe.py", (), choose_cluster(gpu="h100-sxm", nodes=16, gpus_per_node=8))
    found = simulate(plan, [trace])
    own = step_s(plan, [trace], found)
    assert own is not None
    assert step_s(dataclasses.replace(plan, input_s=own / 2), [trace], found) == own
    assert step_s(dataclasses.replace(plan, input_s=own * 3), [trace], found) == own * 3


def _rest(trace: Trace) -> dict[str, list[int]]:
    return {name: column.tolist() for name, column in trace.columns.items() if name != "host_ns"}
