"""A model of vLLM's is a graph of its forward pass over prompts: products, attention and experts have their sizes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from presim import hardware
from presim.composition.compose import compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import take
from presim.composition.graph.works import Sizes, works
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.signatures import Attention, Fused, Gemm, Signature

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm")]
LAYERS, HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, VOCABULARY = 6, 256, 768, 8, 4, 2048
PROMPTS, TOKENS = 3, 512
MODEL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 64, "head_dim": 32}


def graph(folder: Path, **changed: Any) -> OperatorGraph:
    (folder / "config.json").write_text(json.dumps({**MODEL, **changed}))
    return take(f"vllm:{folder}")


def device_work(found: OperatorGraph) -> Counter[Signature]:
    """Of one forward pass."""
    sizes = Sizes(found, PROMPTS, TOKENS)
    times: Counter[Signature] = Counter()
    for segment in found.segments:
        for node in segment.nodes:
            for _, signature in works(node, sizes):
                times[signature] += segment.count
    return times


def test_products_and_attention_are_those_of_vllm_s_fused_layers(tmp_path: Path) -> None:
    """Queries, keys and values are one product, gate and up another; only last tokens have logits."""
    found = graph(tmp_path)
    times = device_work(found)
    rows, keys = PROMPTS * TOKENS, HIDDEN * KV_HEADS // HEADS
    products = {(one.m, one.n, one.k): count for one, count in times.items() if isinstance(one, Gemm)}
    assert products == {
        (rows, HIDDEN + 2 * keys, HIDDEN): LAYERS,
        (rows, HIDDEN, HIDDEN): LAYERS,
        (rows, 2 * FEED_FORWARD, HIDDEN): LAYERS,
        (rows, HIDDEN, FEED_FORWARD): LAYERS,
        (PROMPTS, VOCABULARY, HIDDEN): 1,
    }
    ((attention, count),) = ((one, count) for one, count in times.items() if isinstance(one, Attention))
    assert (attention.batch, attention.heads, attention.kv_heads, attention.q_len) == (PROMPTS, HEADS, KV_HEADS, TOKENS)
    assert (attention.causal, count) == (True, LAYERS)
    assert not any(segment.backward for segment in found.segments)


def test_a_forward_step_is_composed_and_split_over_tensor_parallel_ranks(tmp_path: Path) -> None:
    """Two ranks do half of the products of linear layers each, and add what they made twice in each block."""
    found = graph(tmp_path)
    plan = Plan(sequence=TOKENS, optimizer="none", clip=False, data_style="ddp")
    flops = []
    for tensor in (1, 2):
        cluster = hardware.choose_cluster(gpu="h100-sxm", world_size=tensor)
        (trace,) = compose(found, Plan(**{**_fields(plan), "tensor": tensor}), cluster).traces
        chosen = trace.columns["signature"][trace.steps()[-1]].tolist()
        own = [trace.signatures[index] for index in chosen if index >= 0]
        flops.append(sum(one.flops for one in own if isinstance(one, Gemm)))
        sums = sum(getattr(one, "kind", "") == "all_reduce" for one in own)
        assert sums == (2 * LAYERS if tensor > 1 else 0)
    head = 2 * VOCABULARY * HIDDEN
    assert flops[0] - head == 2 * (flops[1] - head)


def _fields(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__struct_fields__}


def test_experts_are_two_kernels_with_the_flops_of_the_chosen_ones(tmp_path: Path) -> None:
    found = graph(tmp_path, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", **EXPERTS)
    times = device_work(found)
    kernels = [
        (one, count) for one, count in times.items() if isinstance(one, Fused) and one.name == "fused_moe_kernel"
    ]
    each = 2 * PROMPTS * TOKENS * EXPERTS["num_experts_per_tok"] * HIDDEN * EXPERTS["moe_intermediate_size"]
    assert sorted(sum(flops for _, flops in one.products) for one, _ in kernels) == [each, 2 * each]
    assert [count for _, count in kernels] == [LAYERS, LAYERS]


def test_an_architecture_has_the_sizes_that_transformers_gives_its_family() -> None:
    assert take("vllm:MistralForCausalLM").parameter_count() == 7_241_732_096
    with pytest.raises(InputError, match="transformers has no default sizes for NoSuchModel"):
        take("vllm:NoSuchModel")
