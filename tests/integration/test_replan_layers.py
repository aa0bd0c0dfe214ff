"""Jobs of few layers that are extended equal captures of so many layers, or are refused by name."""

from __future__ import annotations

import dataclasses

import pytest

from presim.composition.replan.micro_batches import with_micro_batches
from presim.composition.replan.replan_layers import with_layers
from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.trace.schema import Trace
from support.captured import SCRIPTS, evaluated
from support.long_cases import marked
from support.replanned import broken_rules, calls_that_differ, live_blocks

pytestmark = pytest.mark.torch_cuda
LISTS = frozenset({"aten::_foreach_norm"})  # over all parameters; its launches are divided elsewhere in a deeper model
# what DDP sends of all parameters before the first step
FIRST_SENT = frozenset({"aten::cat", "aten::copy_", "nccl::broadcast"})
# Page-locked memory before the first step, and a wait for NCCL's watchdog there: both are left out
HOST_SETUP = frozenset({"aten::_local_scalar_dense", "HOST_WAIT"})


@dataclasses.dataclass(frozen=True)
class Case:
    """A way of training, and the operators whose launches are divided otherwise in a deeper model."""

    way: str
    layers: int = 9
    differing: frozenset[str] = LISTS


CASES = [
    Case("fsdp"),
    Case("checkpoint"),
    Case("plain"),
    Case("sgd", 12),
    Case("ddp", 12, LISTS | FIRST_SENT | HOST_SETUP),
]


def captured(way: str, layers: int, micro_batches: int = 1) -> list[Trace]:
    options = RunOptions(gpu="h100-sxm", world_size=2, checks=0, steps=0)
    evaluation = evaluated(SCRIPTS / "layered.py", way, str(layers), str(micro_batches), options=options)
    return [evaluation.ranks[rank].trace for rank in sorted(evaluation.ranks)]


@pytest.mark.parametrize("case", marked(CASES, ["fsdp", "checkpoint"], lambda case: case.way))
def test_an_extended_job_is_the_one_with_so_many_layers(case: Case) -> None:
    """Calls of steps in their order with what they refer to, and live blocks after steps."""
    traces, larger, wanted = (captured(case.way, layers) for layers in (5, 6, case.layers))
    extended, sentences = with_layers(traces, case.layers, larger)
    assert f"Extended from 6 to {case.layers} layers" in sentences[0]
    for before, trace, other in zip(larger, extended, wanted, strict=True):
        assert broken_rules(before, trace) == []
        for step in range(len(other.steps())):
            assert set(calls_that_differ(trace, other, step)) <= case.differing
        assert [sum(live.values()) for live in live_blocks(trace)] == [
            sum(live.values()) for live in live_blocks(other)
        ]
        assert trace.manifest.model == other.manifest.model


def test_one_capture_by_itself_says_the_same_of_all_calls_in_layers() -> None:
    traces, wanted = captured("fsdp", 6), captured("fsdp", 9)
    extended, sentences = with_layers(traces, 9)
    assert "no second capture confirms it" in sentences[0]
    outside = {"aten::cat", "aten::fill_", "aten::copy_", "aten::pow", "aten::linalg_vector_norm", "nccl::all_reduce"}
    for trace, other in zip(extended, wanted, strict=True):
        differing = {name for name in calls_that_differ(trace, other, 1) if not name.startswith("aten::_foreach")}
        assert differing <= outside


@pytest.mark.long
def test_layers_are_added_before_micro_batches() -> None:
    traces, wanted = captured("fsdp", 5, 4), captured("fsdp", 9, 7)
    extended, _ = with_layers(traces, 9, captured("fsdp", 6, 4))
    extended, _ = with_micro_batches(extended, 7)
    for trace, other in zip(extended, wanted, strict=True):
        assert calls_that_differ(trace, other, 1).keys() <= LISTS


def test_layers_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match=r"capture the whole model|only 2 of 6 layers do the same"):
        with_layers(captured("differing", 6), 12)


def test_buckets_of_gradients_are_refused() -> None:
    """How many layers share a bucket follows from their number only in captures of all of them."""
    with pytest.raises(InputError, match=r"depends on their number|depends on the number of layers|no law"):
        with_layers(captured("buckets", 6), 12)
    with pytest.raises(InputError, match=r"does not confirm the law|no law"):
        with_layers(captured("buckets", 5), 12, captured("buckets", 6))


def test_two_layers_are_refused_with_the_number_that_is_needed() -> None:
    with pytest.raises(InputError, match="capture it with at least 5"):
        with_layers(captured("plain", 2), 12)
