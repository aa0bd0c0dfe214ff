"""Arguments of engines for what a plan says."""

from __future__ import annotations

from presim.serving.launching.arguments import arguments, command
from presim.serving.launching.checkpoint_source import CheckpointSource
from presim.serving.serving_plan import ServingPlan

SOURCE = CheckpointSource("m", is_path=False, quantization="fp8")


def test_what_starts_an_engine_has_its_limits() -> None:
    words = arguments(SOURCE, ServingPlan(tp=4, weights="fp8", cache="fp8", max_num_seqs=64, ep=True))
    text = " ".join(words)
    for part in ("--tensor-parallel-size 4", "--quantization fp8", "--kv-cache-dtype fp8", "--max-num-seqs 64"):
        assert part in text
    assert "--enable-expert-parallel" in words
    assert "--kv-cache-dtype int8_per_token_head" in " ".join(arguments(SOURCE, ServingPlan(cache="int8")))


def test_sglang_is_started_with_its_own_names() -> None:
    plan = ServingPlan(
        tp=4, kernels="sglang", weights="fp8", max_num_seqs=64, max_num_batched_tokens=4096, max_model_len=9000
    )
    words = command(SOURCE, plan, "prefill")
    assert words.startswith("python3 -m sglang.launch_server --model-path m ")
    for part in ("--tp-size 4", "--max-running-requests 64", "--chunked-prefill-size 4096", "--context-length 9000"):
        assert part in words
    assert "--disaggregation-mode prefill" in words
