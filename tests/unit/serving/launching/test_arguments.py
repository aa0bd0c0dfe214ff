"""Arguments of engines for what a plan says."""

from __future__ import annotations

import json

from presim.serving.launching.arguments import arguments, command
from presim.serving.launching.checkpoint_source import CheckpointSource
from presim.serving.serving_plan import Offload, ServingPlan

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


def test_host_memory_stands_beside_the_connector_between_roles() -> None:
    """vLLM's `--kv-offloading-size` would replace that connector, and is of each data-parallel rank."""
    plan = ServingPlan(dp=2, ep=True, offload=Offload(128.0), prefill_schedule_interval=4)
    alone = " ".join(arguments(SOURCE, plan))
    assert "--kv-offloading-size 64" in alone
    assert "--prefill-schedule-interval 4" in alone
    words = arguments(SOURCE, plan, "prefill")
    assert "--kv-offloading-size" not in words
    config = json.loads(words[words.index("--kv-transfer-config") + 1])
    nixl, host = config["kv_connector_extra_config"]["connectors"]
    assert (config["kv_connector"], nixl["kv_connector"]) == ("MultiConnector", "NixlConnector")
    assert host["kv_connector_extra_config"] == {"cpu_bytes_to_use": 64 * 2**30}
