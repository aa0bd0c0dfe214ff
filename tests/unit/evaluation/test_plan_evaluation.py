"""Plans whose micro-batches repeat have the result of simulating them all."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim import hardware
from presim.analysis.repeated_batches import Repeats
from presim.composition.compose import compose
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.evaluation import plan_evaluation
from presim.evaluation.plan_evaluation import evaluate_plan, shorter
from presim.hardware.cluster import NodeGroup
from presim.result import Result
from support.long_cases import examples
from support.models import llama
from support.workloads import launch_bound

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=16)
PLANS = st.fixed_dictionaries(
    {
        "sequence": st.sampled_from([256, 2048]),
        "tensor": st.sampled_from([1, 2]),
        "pipeline": st.sampled_from([1, 2, 4]),
        "virtual": st.sampled_from([1, 1, 2]),
        "data_style": st.sampled_from(["fsdp2", "zero1", "ddp"]),
        "recompute": st.sampled_from(["none", "full"]),
        "overlap": st.booleans(),
        "clip": st.booleans(),
    }
)


def plan(micros: int, **said: Any) -> Plan:
    chosen = Plan(**said)
    return msgspec.structs.replace(chosen, global_batch=micros * chosen.micro_batch * chosen.data(CLUSTER.world_size))


def figures(result: Result) -> Any:
    """All but memory over time and by module, which are left out where micro-batches are."""
    found = msgspec.to_builtins(result)
    del found["memory"]["timeline"], found["memory"]["modules"]
    return found


def agree(one: Any, other: Any) -> bool:
    """Equal, numbers that are no integers up to the order in which they were added."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(agree(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(agree, one, other))
    return one == pytest.approx(other, rel=1e-9, abs=1e-12) if isinstance(one, float) else bool(one == other)


@pytest.mark.torch_cuda
@settings(max_examples=examples(5), deadline=None)
@given(PLANS, st.integers(10, 28))
def test_the_result_is_that_of_all_micro_batches(said: dict[str, Any], rounds: int) -> None:
    chosen = plan(rounds, **said)
    try:
        every = evaluate_plan(llama(), chosen, CLUSTER, repeat=False).result
    except InputError:  # no such plan
        return
    few = evaluate_plan(llama(), chosen, CLUSTER).result
    assert few.step_time_s == every.step_time_s
    assert agree(figures(few), figures(every))


@pytest.mark.torch_cuda
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"pipeline": 2, "data_style": "zero1"},
        {"data_style": "ddp"},
        {"pipeline": 2, "virtual": 2},
        {"pipeline": 2, "virtual": 2, "data_style": "zero1"},
    ],
    ids=str,
)
def test_few_of_many_micro_batches_are_simulated(said: dict[str, Any]) -> None:
    chosen = plan(48, sequence=2048, micro_batch=16, **said)
    few, every = (evaluate_plan(llama(), chosen, CLUSTER, repeat=repeat) for repeat in (True, False))
    assert len(few.priced.trace) < len(every.priced.trace) / 2
    assert few.result.step_time_s == every.result.step_time_s
    assert agree(figures(few.result), figures(every.result))


@pytest.mark.parametrize(("micros", "left_out"), [(4, []), (64, [59, 55]), (9, [4])])
def test_as_much_is_left_out_as_may_repeat(micros: int, left_out: list[int]) -> None:
    assert [lacks.micros for lacks in shorter(plan(micros, sequence=256), CLUSTER)] == left_out


@pytest.mark.parametrize(("micros", "left_out"), [(64, [27, 24]), (16, [3]), (7, [])])
def test_of_interleaved_stages_whole_rounds_are_left_out(micros: int, left_out: list[int]) -> None:
    found = shorter(plan(micros, sequence=256, pipeline=2, virtual=2), CLUSTER)
    assert [(lacks.period, lacks.times) for lacks in found] == [(2, times) for times in left_out]


@pytest.mark.parametrize("said", [{"schedule": "gpipe"}, {"schedule": "zero-bubble"}], ids=str)
def test_other_schedules_are_simulated_whole(said: dict[str, Any]) -> None:
    assert shorter(plan(64, sequence=256, pipeline=2, **said), CLUSTER) == []


@pytest.mark.torch_cuda
@pytest.mark.parametrize("said", [{"pipeline": 2}, {"pipeline": 2, "virtual": 2}, {"pipeline": 4}])
def test_memory_of_the_first_stage_alone_is_that_of_the_job(said: dict[str, Any]) -> None:
    chosen = plan(24, sequence=256, **said)
    whole = evaluate_plan(llama(), chosen, CLUSTER).result
    first = evaluate_plan(llama(), chosen, CLUSTER, first_only=True).result
    assert [rank.rank for rank in first.ranks] == [0]
    assert first.ranks[0].peak_reserved_bytes == whole.ranks[0].peak_reserved_bytes
    assert first.memory.headroom_bytes >= whole.memory.headroom_bytes


@pytest.mark.torch_cuda
def test_stages_on_different_nodes_repeat_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batches are left out where the stages of a pipeline are on different groups of nodes."""
    old = hardware.choose_cluster(gpu="a100-80gb-sxm", world_size=8)
    mixed = msgspec.structs.replace(CLUSTER, groups=(NodeGroup("old", 1, 1, old.gpu, old.node, old.fabric),))
    chosen = plan(24, sequence=2048, tensor=2, pipeline=2, data_style="zero1")
    every = evaluate_plan(llama(), chosen, mixed, repeat=False)
    composed = []
    monkeypatch.setattr(
        plan_evaluation, "compose", lambda *args, **more: composed.append(more) or compose(*args, **more)
    )
    few = evaluate_plan(llama(), chosen, mixed)
    assert all("lacks" in more for more in composed)
    assert agree(figures(few.result), figures(every.result))


def test_a_rank_that_is_split_off_repeats_as_the_rank_that_stood_for_it() -> None:
    begins = {0: np.array([1, 2]), 4: np.array([3])}
    found = Repeats(begins, {0: launch_bound()}, 1, 5).of_ranks([0, 2, 4, 6, 7], {2: 0, 6: 4, 7: 5})
    assert {rank: list(entries) for rank, entries in found.begins.items()} == {0: [1, 2], 2: [1, 2], 4: [3], 6: [3]}
    assert sorted(found.memory) == [0, 2]
