"""Models, memory and steps: sums that are published, and what must grow with what."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import msgspec
import numpy as np
import pytest

from presim.composition.models.decoder_layers import Layer
from presim.cost.measured import table
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.deployments.deployment import Deployment
from presim.serving.kept_bytes import model_token_bytes, token_bytes
from presim.serving.model_lookup import find, names
from presim.serving.serving_plan import Cache, ServingPlan, graph_sizes
from presim.serving.steps import stage
from presim.serving.steps.engine_memory import lay_out
from presim.serving.steps.step_work import Reduce
from presim.serving.steps.times import PricedEngine, build
from presim.trace.signatures import Gemm


@functools.cache
def engine(model: str, plan: ServingPlan, gpu: str = "h100-sxm") -> PricedEngine:
    return build(find(model), plan, choose_cluster(gpu=gpu, world_size=plan.gpus))


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        *[
            ("llama3-8b", 8.03),
            ("llama3-70b", 70.6),
            ("llama3-405b", 405.9),
            ("qwen3-0.6b", 0.596),
            ("qwen3-32b", 32.8),
            ("qwen3-30b-a3b", 30.5),
        ],
        *[("qwen3-235b-a22b", 235.1), ("mixtral-8x7b", 46.7), ("deepseek-v3", 671.0), ("gpt-oss-120b", 116.8)],
        *[("kimi-k2", 1026.0), ("minimax-m2", 228.7)],
    ],
)
def test_parameters_are_those_on_the_model_s_page(name: str, billions: float) -> None:
    assert find(name).parameters / 1e9 == pytest.approx(billions, rel=0.015)


def test_every_known_model_is_found_by_its_other_names() -> None:
    assert "llama3-8b" in names()
    assert find("meta-llama/Llama-3.1-8B") == find("llama3-8b")
    with pytest.raises(InputError, match="did you mean llama3-8b"):
        find("llama-3-8")


def test_the_cache_is_as_large_as_vllm_s_log_says() -> None:
    """`GPU KV cache size: 457,328 tokens` of Llama-3.1-8B on an H100 (docs/guide/vllm.md), within one percent."""
    assert engine("llama3-8b", ServingPlan()).limits.kv_tokens == pytest.approx(457_328, rel=0.01)


def test_a_model_that_does_not_fit_is_refused_with_what_would() -> None:
    cluster = choose_cluster(gpu="h100-sxm", world_size=1)
    with pytest.raises(
        InputError, match=r"does not fit .*: weights 131\.\d GiB.* Options that fit: --tp 2, or --weights fp8"
    ):
        lay_out(find("llama3-70b"), ServingPlan(), cluster.gpu)
    with pytest.raises(InputError, match="Use --tp 8 --pp 2"):
        lay_out(find("llama3-405b"), ServingPlan(), cluster.gpu)
    with pytest.raises(InputError, match="tp 3 does not divide 32 heads"):
        build(find("llama3-8b"), ServingPlan(tp=3), cluster)


def test_steps_grow_with_tokens_sequences_and_context() -> None:
    times = engine("llama3-8b", ServingPlan()).times
    assert (np.diff(times.token_ns) > -1e-6 * times.token_ns[:-1]).mean() > 0.99
    assert times.step_ns([], [1000] * 8) < times.step_ns([], [1000] * 64) < times.step_ns([], [8000] * 64)
    assert times.step_ns([(512, 512)], []) < times.step_ns([(512, 8192)], []) < times.step_ns([(2048, 8192)], [])


def test_a_small_decode_reads_the_weights_once() -> None:
    """One token takes at least as long as the weights take to come from memory, and not twice that."""
    one = engine("llama3-8b", ServingPlan())
    least = (
        (one.memory.weights - 2 * one.model.vocabulary * one.model.hidden) / one.cluster.gpu.memory_bytes_per_s * 1e9
    )
    assert least < one.times.step_ns([], [128]) < 2 * least


def test_steps_are_padded_to_the_sizes_of_cuda_graphs() -> None:
    sizes = graph_sizes(ServingPlan(), blackwell=False)
    assert sizes[:5] == (1, 2, 4, 8, 16)
    assert sizes[-1] == 512
    table = engine("llama3-8b", ServingPlan()).times.token_ns
    assert table[9] == table[16]
    assert graph_sizes(dataclasses.replace(ServingPlan(), cuda_graphs=False), blackwell=False) == ()


def test_steps_without_graphs_wait_for_their_launches_or_for_the_device_but_not_for_both() -> None:
    """Long contexts hide the launches of an eager step, which its attention does not lengthen."""
    graphs, eager = (engine("llama3-8b", ServingPlan(cuda_graphs=kept)).times for kept in (True, False))
    short, long = [200] * 8, [20_000] * 64
    assert eager.step_ns([], short) == eager.decode_launch_ns[8] > 1.2 * graphs.step_ns([], short)
    assert eager.step_ns([], long) == pytest.approx(graphs.step_ns([], long), rel=0.02)


def test_experts_of_an_eager_step_take_several_launches() -> None:
    """41 ms for Qwen3-30B-A3B's 48 layers, as vLLM's model runner takes on the emulated H100."""
    times = engine("qwen3-30b-a3b", ServingPlan(cuda_graphs=False)).times
    assert times.step_ns([], [200] * 4) == pytest.approx(41e6, rel=0.05)


def test_steps_with_prompts_of_sglang_and_tensorrt_llm_are_launched_one_by_one() -> None:
    """vLLM has graphs between two attention kernels; the others only for decoding. SGLang runs them eagerly."""
    vllm, sglang, trtllm = (
        engine("llama3-8b", ServingPlan(kernels=which)).times for which in ("vllm", "sglang", "trtllm")
    )
    eager = engine("llama3-8b", ServingPlan(cuda_graphs=False)).times
    assert vllm.step_ns([(64, 64)], []) < trtllm.step_ns([(64, 64)], []) == trtllm.prompt_launch_ns[64]
    assert vllm.prompt_launch_ns[64] < vllm.prompt_launch_ns[600] == trtllm.prompt_launch_ns[64]
    assert sglang.step_ns([(64, 64)], []) == eager.step_ns([(64, 64)], []) > trtllm.prompt_launch_ns[64]
    assert vllm.step_ns([], [64] * 8) == sglang.step_ns([], [64] * 8) == trtllm.step_ns([], [64] * 8)


def test_more_ranks_and_smaller_weights_make_decoding_faster() -> None:
    plans = [ServingPlan(tp=4), ServingPlan(tp=8), ServingPlan(tp=8, weights="fp8")]
    took = [engine("llama3-70b", plan).times.step_ns([], [1000] * 8) for plan in plans]
    assert took == sorted(took, reverse=True)


def test_experts_latent_attention_and_windows_have_steps() -> None:
    for name, plan, gpu in (
        ("qwen3-30b-a3b", ServingPlan(), "h100-sxm"),
        ("deepseek-v3", ServingPlan(tp=8, weights="fp4"), "b200"),
        ("deepseek-v3", ServingPlan(dp=8, ep=True, weights="fp8", cache="fp8"), "b200"),
        ("gpt-oss-120b", ServingPlan(tp=2, expert_weights="fp4"), "b200"),
    ):
        one = engine(name, plan, gpu)
        assert 1e6 < one.times.step_ns([], [1000] * 8) < 1e8
        assert 0 < one.uncertainty < 1
        assert sum(one.origins.values()) == pytest.approx(1)


def without_indexer(kind: Layer) -> Layer:
    (mixer,) = kind.mixers
    weights = tuple(weight for weight in kind.weights if "indexer" not in weight.name)
    dense = msgspec.structs.replace(mixer, indexer=None, sparse_keys=0)
    return msgspec.structs.replace(kind, mixers=(dense,), weights=weights)


def test_sparse_attention_reads_chosen_keys_and_scores_all_of_them() -> None:
    """GLM-5: the indexer's key is 128 of 704 cached elements, and 2,048 of many keys are attended to."""
    plan = ServingPlan(tp=8, weights="fp8-block", cache="fp8")
    sparse = engine("glm-5", plan, "b200")
    kinds = tuple(without_indexer(kind) for kind in sparse.model.kinds)
    dense = build(msgspec.structs.replace(sparse.model, kinds=kinds), plan, sparse.cluster)
    assert [sparse.model.cached[0].token_elements, dense.model.cached[0].token_elements] == [512 + 64 + 128, 512 + 64]
    assert sparse.memory.weights > dense.memory.weights
    short, long = ([keys] * 32 for keys in (1024, 65_536))
    assert sparse.times.step_ns([], short) > dense.times.step_ns([], short)
    assert sparse.times.step_ns([], long) < dense.times.step_ns([], long)


@pytest.mark.parametrize(
    ("gpu", "cache", "latent"),
    [("h100-sxm", "bf16", 1152), ("h100-sxm", "fp8", 656), ("b200", "fp8", 576), ("rtx-pro-6000", "bf16", 656)],
)
def test_sparse_attention_keeps_the_indexer_s_key_in_8_bits(gpu: str, cache: Cache, latent: int) -> None:
    """128 bytes and a factor; the rest as the GPU's kernels have it."""
    architecture = choose_cluster(gpu=gpu).gpu.architecture
    assert token_bytes(find("glm-5").cached[0], cache, architecture) == latent + 132


def test_tokens_reach_their_experts_by_an_exchange_or_by_a_sum() -> None:
    """vLLM gathers all tokens and scatters sums; SGLang and TensorRT-LLM send each to the ranks of its experts."""
    model = find("deepseek-v3")
    kinds = {}
    for kernels in ("vllm", "sglang"):
        works = stage.layer_works(model.kinds[-1], model.hidden, ServingPlan(dp=16, ep=True, kernels=kernels), 64)
        kinds[kernels] = [work for work in works if isinstance(work, Reduce) and work.over == "experts"]
    assert [(work.kind, work.bytes) for work in kinds["vllm"]] == [
        ("all_gather", 2 * 64 * 7168 * 16),
        ("reduce_scatter", 2 * 64 * 7168 * 16),
    ]
    dispatch, combine = kinds["sglang"]
    assert dispatch.kind == combine.kind == "all_to_all"
    reached = 16 * (1 - (15 / 16) ** 8)
    assert combine.bytes == pytest.approx(2 * 64 * 7168 * reached, rel=1e-6)


def test_data_parallel_prefill_engines_step_together() -> None:
    """Each rank is a replica; those of one engine have one group, and no two engines share one."""
    model, plan = find("qwen3-30b-a3b"), ServingPlan(dp=2, ep=True)
    one = build(model, plan, choose_cluster(gpu="h100-sxm", world_size=2))
    fleet = Deployment(one, 2, prefill=one, prefill_replicas=1).fleet()
    assert [(replica.role, replica.group) for replica in fleet.replicas] == [
        *[("prefill", 2)] * 2, *[("decode", 0)] * 2, *[("decode", 1)] * 2,
    ]  # fmt: skip


def test_the_user_s_own_tables_are_asked_first(tmp_path: Path) -> None:
    """The gate and up projections of one token take a millisecond there, in each of 32 layers."""
    slow = Gemm(1, 2 * 14336, 4096, 1, "bfloat16", layout="NT")
    table.write(
        [Measurement(gpu="h100-sxm", signature=slow, duration_ns=1e6, source=PROFILE)],
        tmp_path / f"mine{table.SUFFIX}",
        {},
    )
    model, plan, cluster = find("llama3-8b"), ServingPlan(), choose_cluster(gpu="h100-sxm")
    known, own = (build(model, plan, cluster, prices=prices) for prices in ((), (tmp_path,)))
    assert own.times.token_ns[1] - known.times.token_ns[1] == pytest.approx(32e6, rel=0.1)


def test_weights_of_4_bits_are_unpacked_as_they_are_multiplied() -> None:
    """A decoding step reads a quarter of the bytes; with thousands of tokens it takes as long as in 16 bits."""
    half, packed = (
        build(find("llama3-8b"), ServingPlan(weights=weights), choose_cluster(gpu="h100-sxm")).times.token_ns
        for weights in ("bf16", "int4")
    )
    assert packed[1] < 0.65 * half[1]
    assert packed[8192] == pytest.approx(half[8192], rel=0.1)


def test_an_int8_cache_has_a_factor_for_each_token_and_head() -> None:
    """132 bytes for 128 values; only vLLM has it, and not for latent attention."""
    model = find("llama3-8b")
    assert [model_token_bytes(model, cache, "hopper") // 32 for cache in ("bf16", "fp8", "int8")] == [
        *(4096, 2048, 2112),
    ]
    narrow, wide = (
        lay_out(model, ServingPlan(cache=cache), choose_cluster(gpu="h100-sxm").gpu) for cache in ("int8", "bf16")
    )
    assert narrow.blocks / wide.blocks == pytest.approx(4096 / 2112, rel=0.001)
    for plan, other in (
        (ServingPlan(cache="int8"), "deepseek-v3"),
        (ServingPlan(cache="int8", kernels="sglang"), "llama3-8b"),
    ):
        with pytest.raises(InputError, match="use --kv fp8"):
            plan.check(find(other))
