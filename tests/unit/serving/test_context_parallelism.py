"""Decode context parallelism: ranks keep tokens in turn instead of copies, and exchange queries and outputs."""

from __future__ import annotations

from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware import catalogue
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.launching.arguments import arguments
from presim.serving.launching.checkpoint_source import CheckpointSource
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps import mixer_work
from presim.serving.steps.engine_memory import MemoryPlan, lay_out
from presim.serving.steps.step_detail import decode_step
from presim.serving.steps.times import build

MODEL = find("deepseek-v3")
H200 = catalogue.gpu("h200")


def memory(word: str = "deepseek-v3", **fields: Any) -> MemoryPlan:
    plan = ServingPlan(tp=8, **{"weights": "fp8-block", "max_num_batched_tokens": 8192, **fields})
    return lay_out(find(word), plan, H200)


@pytest.mark.parametrize("dcp", [2, 8])
@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_a_latent_cache_holds_as_many_times_the_tokens(dcp: int, cache: str) -> None:
    copied, divided = memory(cache=cache), memory(cache=cache, dcp=dcp)
    assert divided.block == copied.block  # bytes of a page on a rank
    assert divided.blocks == copied.blocks
    assert divided.pool.block_tokens == 16 * dcp
    assert divided.tokens(32_768) == pytest.approx(dcp * copied.tokens(32_768), rel=1e-3)


def test_grouped_heads_are_divided_where_ranks_have_copies_of_them() -> None:
    """Qwen3-235B has 4 KV heads, so two of 8 ranks keep each."""
    copied, divided = (memory("qwen3-235b-a22b", dcp=dcp) for dcp in (1, 2))
    assert divided.tokens(8192) == pytest.approx(2 * copied.tokens(8192), rel=1e-3)


def test_a_rank_attends_with_all_heads_to_its_own_keys_in_decodes_alone() -> None:
    latent = MODEL.latent
    assert latent is not None
    plan = ServingPlan(tp=8, dcp=4)
    decode = mixer_work.kernel(latent, plan, 32, 1, 4096, "flash3", decode=True)
    assert (decode.heads, decode.kv_len) == (latent.heads // 8 * 4, 1024)
    prompt = mixer_work.kernel(latent, plan, 1, 4096, 4096, "flash3", decode=False)
    assert (prompt.heads, prompt.kv_len) == (latent.heads // 8, 4096)


def test_queries_are_gathered_and_outputs_scattered() -> None:
    latent = MODEL.latent
    assert latent is not None
    sent = mixer_work.exchange(latent, ServingPlan(tp=8, dcp=8), 32)
    assert [(work.kind, work.bytes) for work in sent] == [
        ("all_gather", 2 * 32 * 128 * 576),
        ("all_gather", 4 * 32 * 128 * 8),
        ("reduce_scatter", 2 * 32 * 128 * 512),
    ]
    assert mixer_work.exchange(latent, ServingPlan(tp=8), 32) == []


@pytest.mark.parametrize(
    ("word", "fields", "reason"),
    [
        ("deepseek-v3", {"tp": 8, "dcp": 3}, "--dcp 3 does not divide tp 8; choose a divisor of 8"),
        ("qwen3-32b", {"tp": 8, "dcp": 2}, "--dcp 2 needs as many ranks with a copy of each of the 8 KV heads"),
        (
            "gpt-oss-120b",
            {"tp": 8, "dcp": 2},
            "modelled for attention over all tokens alone, and gpt-oss-120b has other",
        ),
        ("qwen3-next-80b-a3b", {"tp": 4, "dcp": 2}, "modelled for attention over all tokens alone"),
        ("deepseek-v3", {"tp": 8, "dcp": 8, "kernels": "sglang"}, "is modelled as vLLM's"),
    ],
)
def test_what_vllm_or_presim_does_not_divide_is_refused(word: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ServingPlan(**fields).check(find(word))


def test_the_server_is_started_with_it() -> None:
    words = arguments(CheckpointSource("deepseek-ai/DeepSeek-V3", is_path=False), ServingPlan(tp=8, dcp=8))
    assert words[words.index("--decode-context-parallel-size") + 1] == "8"


def test_decodes_of_long_contexts_read_less_and_prompts_stay_as_they_are() -> None:
    """Each rank reads its eighth of the latent cache, which outweighs what it exchanges."""
    fields: dict[str, Any] = {"tp": 8, "weights": "fp8-block", "max_num_seqs": 64, "max_num_batched_tokens": 2048}
    cluster = choose_cluster(gpu="h200", world_size=8)
    copied, divided = (build(MODEL, ServingPlan(**fields, dcp=dcp), cluster) for dcp in (1, 8))
    long_context = [engine.times.step_ns([], [131_072] * 32) for engine in (copied, divided)]
    short_context = [engine.times.step_ns([], [256] * 32) for engine in (copied, divided)]
    assert long_context[1] < 0.8 * long_context[0]
    assert short_context[0] < short_context[1] < 1.3 * short_context[0]
    assert divided.times.prefill_ns.tolist() == copied.times.prefill_ns.tolist()
    step = decode_step(divided, 32, 131_072)
    assert step.device_us == pytest.approx(step.simulated_us, rel=0.1)
    assert any("over context" in row.name for row in step.operators)
