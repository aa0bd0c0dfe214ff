"""Each pass of a plan is checked as soon as it has run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from presim import hardware
from presim.composition.compose import compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.passes import (
    compiled_functions,
    context_parallel,
    shared_root,
    split_loss,
    tensor_parallel,
    zero_bubble,
)
from presim.composition.passes.graph_invariants import problems
from presim.composition.passes.pass_chain import PassChain
from presim.composition.plan import Plan
from presim.errors import InputError
from support.models import llama, qwen_moe

pytestmark = pytest.mark.torch_cuda
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=16)
SPLITS = ({}, {"vocabulary": True}, {"sequence": True, "vocabulary": True})


@pytest.mark.parametrize("model", [llama, qwen_moe], ids=("llama", "qwen_moe"))
@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("again", [False, True], ids=("kept", "gathered again"))
def test_every_tensor_of_a_split_graph_is_made_before_it_is_used(
    model: Callable[[], OperatorGraph], split: dict[str, bool], again: bool
) -> None:
    """A loss over split words and norms of queries and keys among them."""
    graph = tensor_parallel.apply(model(), 4, gathers_again=again, **split)
    assert list(problems(graph)) == []
    for change in (split_loss.apply, compiled_functions.apply, shared_root.apply, zero_bubble.apply):
        graph = change(graph)
        assert list(problems(graph)) == []
    for style in ("all-gather", "ulysses"):
        assert list(problems(context_parallel.apply(model(), 4, style))) == []


@pytest.mark.parametrize("style", ["fsdp2", "zero1"])
def test_norms_of_queries_and_keys_are_composed_with_split_sequences(style: str) -> None:
    plan = Plan(sequence=512, tensor=4, sequence_parallel=True, data_style=style)  # type: ignore[arg-type]
    assert compose(qwen_moe(), plan, CLUSTER).traces


def halves(graph: OperatorGraph) -> OperatorGraph:
    """Forgets the backward pass."""
    return msgspec.structs.replace(graph, segments=tuple(one for one in graph.segments if not one.backward))


def shrinks(graph: OperatorGraph) -> OperatorGraph:
    """Each parameter becomes a row."""
    return msgspec.structs.replace(
        graph, parameters=tuple(msgspec.structs.replace(one, shape=one.shape[-1:]) for one in graph.parameters)
    )


def test_a_pass_that_loses_work_or_parameters_is_named() -> None:
    with pytest.raises(InputError, match=r"^the pass x changed the FLOPs of products and attention from [\d,]+ to"):
        PassChain(llama(), 1, 512).step("x", halves)
    with pytest.raises(
        InputError, match=r"^the pass x changed the parameter model\.embed_tokens\.weight from [\d,]+ to"
    ):
        PassChain(llama(), 1, 512).step("x", shrinks, ranks=2)
