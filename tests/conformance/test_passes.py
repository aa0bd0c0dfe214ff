"""One suite over all passes of graphs: work is conserved, no bound is broken, and every rank of a group calls the same.

A pass of one's own joins it by a line in `PASSES`.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator

import msgspec
import pytest

from presim.composition.compose import compose
from presim.composition.graph.graph_schema import Node, OperatorGraph
from presim.composition.graph.take import open_graph
from presim.composition.graph.works import COUNTED, Sizes, works
from presim.composition.passes import collective_order, collective_split, tensor_parallel
from presim.composition.passes.graph_invariants import problems
from presim.composition.passes.registry import find, names
from presim.composition.plan import Plan
from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware import choose_cluster
from presim.result import Result
from presim.trace.schema import Kind
from presim.trace.signatures import Collective

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=4)
SIZE = (1, 512)  # batch, sequence
FORWARD_ONLY = ("w4a16",)
OTHER_GPUS = ("mxfp8", "nvfp4")  # an H100 has no products of these numbers
# name -> FLOPs of products after it over those before, forward and backward; others keep all of them
FLOPS = {"sparse24": 0.0}  # 2:4 products count half, and how many there are depends on the model
PASSES = [name for name in names() if name not in (*FORWARD_ONLY, *OTHER_GPUS)]


@functools.cache
def graph(split: bool = False) -> OperatorGraph:
    """Two blocks of Llama 3 8B; ``split``: as one of four tensor-parallel ranks has them."""
    model = open_graph("llama3-8b")
    segments = tuple(msgspec.structs.replace(one, count=min(one.count, 2)) for one in model.segments)
    model = msgspec.structs.replace(model, segments=segments)
    return tensor_parallel.apply(model, 4, sequence=True, vocabulary=True) if split else model


def signatures(changed: OperatorGraph) -> Iterator[tuple[Node, int]]:
    """The operators of a step, and their FLOPs."""
    sizes = Sizes(changed, *SIZE)
    for segment in changed.segments:
        for node in segment.nodes:
            flops = sum(signature.flops for _, signature in works(node, sizes)) if node.operator in COUNTED else 0
            yield node, flops * segment.count


@functools.cache
def simulated(name: str, host: float = 1.0) -> Result:
    plan = Plan(sequence=512, tensor=4, sequence_parallel=True, data_style="ddp", passes=(name,) if name else ())
    job = compose(graph(), plan, CLUSTER)
    return evaluate(job, CLUSTER, Options(host_factor=host), brief=True).result


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("split", [False, True], ids=("one rank", "tensor-parallel"))
def test_products_keep_their_flops_and_every_tensor_is_made_before_its_use(name: str, split: bool) -> None:
    changed = find(name)(graph(split))
    assert list(problems(changed)) == []
    before, after = (sum(flops for _, flops in signatures(one)) for one in (graph(split), changed))
    if name in FLOPS:
        assert 0 < after < before
    else:
        assert after == before


@pytest.mark.parametrize("name", PASSES)
def test_a_step_is_no_shorter_than_its_work(name: str) -> None:
    """Neither computing nor any rank's part of it, and the peak holds the parameters."""
    result = simulated(name)
    assert result.step_time_s is not None
    for rank in result.ranks:
        assert rank.compute_s <= result.step_time_s
    assert result.memory.peak_allocated_bytes > 0


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_moves_as_many_bytes_between_ranks(name: str) -> None:
    """By kind and group, and in the same order on both stages of a pipeline's ranks; only FP8 could send fewer."""

    def moved(names: tuple[str, ...]) -> dict[tuple[str, int], int]:
        plan = Plan(sequence=512, tensor=2, pipeline=2, global_batch=2, sequence_parallel=True, passes=names)
        total: dict[tuple[str, int], int] = collections.Counter()
        for trace in compose(graph(), plan, CLUSTER).traces:
            for index in trace.columns["signature"][trace.mask(Kind.WORK)]:
                signature = trace.signatures[index]
                if isinstance(signature, Collective):
                    total[signature.kind, signature.group] += signature.bytes
        return dict(total)

    assert moved((name,)) == moved(())


def test_reordering_keeps_every_node() -> None:
    """As a multiset, and collectives in their order; nothing takes longer by more than what runs beside them costs."""
    changed = collective_order.apply(graph(True))
    for before, after in zip(graph(True).segments, changed.segments):
        assert collections.Counter(map(repr, before.nodes)) == collections.Counter(map(repr, after.nodes))
        sent = [[node for node in one.nodes if node.operator.startswith("comm::") and not node.view]
                for one in (before, after)]  # fmt: skip
        assert sent[0] == sent[1]
    plain, early = simulated("", 0.0), simulated(collective_order.NAME, 0.0)
    assert plain.step_time_s is not None
    assert early.step_time_s is not None
    assert early.step_time_s < plain.step_time_s


def test_parts_of_a_product_are_the_product() -> None:
    """Each part has a share of the columns, its own collective and storage; the parts are joined once."""
    changed = collective_split.apply(graph(True), 4)
    kinds = [collections.Counter(node.operator for node, _ in signatures(one)) for one in (graph(True), changed)]
    scattered = "comm::reduce_scatter"
    splits = (kinds[1][scattered] - kinds[0][scattered]) // 3
    assert splits > 0
    assert kinds[1]["aten::mm"] == kinds[0]["aten::mm"] + 3 * splits


def test_a_model_without_collectives_is_not_reordered() -> None:
    assert collective_order.apply(graph()) == graph()
    assert collective_split.apply(graph(), 2).segments == graph().segments
