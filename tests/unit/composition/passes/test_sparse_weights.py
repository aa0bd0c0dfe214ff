"""2:4 and 4-bit weights: what becomes sparse or small, what stays, and what is refused."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim import hardware
from presim.composition.compose import compose
from presim.composition.graph.forward import forward
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.parameters import size
from presim.composition.graph.works import Sizes, works
from presim.composition.passes import fusion, registry, sparse_weights, weight_only
from presim.composition.plan import Plan
from presim.cost.chain import price_trace
from presim.errors import InputError
from presim.trace.signatures import Gemm, Signature
from presim.trace.trace_invariants import check
from support.models import llama

pytestmark = pytest.mark.torch_cuda
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": "full"},
    {"tensor": 2, "sequence_parallel": True},
    {"pipeline": 2, "global_batch": 16, "schedule": "zero-bubble"},
    {"activation_budget": 0.5},
)


def signatures(graph: OperatorGraph) -> Counter[Signature]:
    sizes, found = Sizes(graph, 2, 128), Counter[Signature]()
    for segment in graph.segments:
        for node in segment.nodes:
            for _, signature in works(node, sizes):
                found[signature] += segment.count
    return found


def test_two_of_three_products_of_a_layer_become_sparse() -> None:
    """Those with the weight; each has half of its FLOPs, and the gradient of the weight all of them."""
    plain, changed = signatures(llama()), signatures(sparse_weights.apply(llama()))
    products = [one for one in changed.elements() if isinstance(one, Gemm)]
    assert Counter(one.sparsity for one in products) == {"2:4 b": 2 * 7 * 4, "": 7 * 4 + 3}
    dense = sum(one.flops for one in plain.elements() if isinstance(one, Gemm))
    assert sum(one.flops * (2 if one.sparsity else 1) for one in products) == dense
    tiles = [one for one in changed.elements() if getattr(one, "operator", "") == sparse_weights.TILE]
    assert len(tiles) == 7 * 4
    assert all(one.bytes_written == one.bytes_read * 9 // 8 for one in tiles)  # type: ignore[union-attr]


@settings(max_examples=5)
@given(st.sampled_from(KINDS), st.sampled_from(("sparse24", "int8")))
def test_plans_are_composed_with_narrow_products(kind: dict[str, Any], name: str) -> None:
    """No entry of the trace lacks an estimator."""
    job = compose(llama(), Plan(sequence=256, passes=(name,), **kind), CLUSTER)
    for trace in job.traces:
        check(trace)
        chosen = [one for one in trace.signatures if isinstance(one, Gemm) and (one.sparsity or one.dtype == "int8")]
        assert chosen
        assert price_trace(trace, CLUSTER).uncovered == ()


def test_other_passes_come_before_and_after() -> None:
    counts = [signatures(registry.apply(llama(), names, 2, 128)[0]) for names in (
        ("sparse24", "fuse-norm"), ("fuse-norm", "sparse24"))]  # fmt: skip
    assert counts[0] == counts[1]
    assert fusion.norm(sparse_weights.apply(llama())) == sparse_weights.apply(fusion.norm(llama()))


@pytest.mark.parametrize(
    ("names", "gpu", "sentence"),
    [
        (("sparse24",), "v100-32gb-sxm", "Tesla V100-SXM2-32GB has no 2:4 sparse products with a known price"),
        (("sparse24", "int8"), "h100-sxm", "sparse24 and int8 change the same products, which is not composed"),
        (("w4a16",), "h100-sxm", "w4a16 is of inference: 4-bit weights have no gradients, and the graph of "),
        (("int8",), "p100-pcie", "Tesla P100-PCIE-16GB has no matrix units for int8; use no quantisation"),
    ],
)
def test_what_cannot_run_is_refused(names: tuple[str, ...], gpu: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        compose(llama(), Plan(sequence=256, passes=names), hardware.choose_cluster(gpu=gpu, world_size=8))


def test_a_model_without_large_weights_has_nothing_to_prune() -> None:
    with pytest.raises(InputError, match=r"^sparse24 finds no 16-bit weight in repeated blocks of "):
        sparse_weights.apply(sparse_weights.apply(llama()))


def test_four_bit_weights_take_a_quarter_and_their_scales() -> None:
    """Products are as many and as large; all other parameters and operators stay."""
    before = forward(llama())
    after, _ = registry.apply(before, ("w4a16",), 2, 128)
    packed = {(one.segment, one.name.removesuffix("_scales")) for one in after.parameters if "_scales" in one.name}
    old = sum(size(one) for one in before.parameters if (one.segment, one.name) in packed)
    kept = [one for one in before.parameters if (one.segment, one.name) not in packed]
    new = sum(size(one) for one in after.parameters if one not in kept)
    assert len(packed) == 7
    assert new == old // 4 + old // 128
    narrow = [one for one in signatures(after).elements() if isinstance(one, Gemm) and one.b_dtype == "uint4"]
    assert len(narrow) == 7 * 4
    assert signatures(after).total() == signatures(before).total()
    assert weight_only.apply(after) == after
