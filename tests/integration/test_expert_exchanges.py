"""Exchanges with experts as composed, beside those of Megatron-core's dispatchers as captured."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from presim import hardware
from presim.composition.compose import compose
from presim.composition.graph.take import take
from presim.composition.plan import Plan
from presim.trace.signatures import Collective
from support.captured import run

LAYERS, HIDDEN, TOKENS, RANKS, EXPERTS, CHOSEN = 4, 512, 2048, 8, 32, 2

pytestmark = [
    pytest.mark.torch_cuda,
    pytest.mark.needs("megatron.core"),
    pytest.mark.needs("transformer_engine"),
]
MIXTURE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": HIDDEN,
    "moe_intermediate_size": 4 * HIDDEN,
    "intermediate_size": 4 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
    "vocab_size": 512,
    "tie_word_embeddings": False,
    "use_cache": False,
}


def composed(folder: Path, exchange: Any) -> Counter[tuple[object, ...]]:
    config = folder / "config.json"
    config.write_text(json.dumps(MIXTURE))
    plan = Plan(sequence=TOKENS, expert=RANKS, data_style="zero1", expert_exchange=exchange)
    cluster = hardware.choose_cluster(gpu="h100-sxm", world_size=RANKS)
    trace = compose(take(str(config)), plan, cluster).traces[0]
    chosen = trace.columns["signature"][trace.steps()[-1]]
    work = [trace.signatures[index] for index in chosen[chosen >= 0].tolist()]
    names = [group.name for group in trace.manifest.groups]
    return described([one for one in work if isinstance(one, Collective) and names[one.group] == "experts"])


def described(collectives: list[Collective]) -> Counter[tuple[object, ...]]:
    return Counter((one.kind, one.bytes, *((one.routed.chosen, one.routed.experts, one.routed.sms,
                    one.routed.token_bytes) if one.routed else ())) for one in collectives)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("exchange", "dispatcher"), [("all-gather", "allgather"), ("deepep", "deepep")])
def test_exchanges_are_those_that_megatron_s_dispatchers_start(tmp_path: Path, exchange: str, dispatcher: str) -> None:
    """Tokens, choices and weights there, sums back, and their gradients: the same kinds and bytes."""
    job = run(
        "megatron_gpt.py", "--model", "tiny", "--experts", str(EXPERTS), "--expert-parallel", str(RANKS),
        "--dispatcher", dispatcher, world_size=RANKS, rank=0, steps=2,
    )  # fmt: skip
    names = [group.name for group in job.trace.manifest.groups]
    of_experts = [one for one in job.collectives() if names[one.group].startswith("EXPERT_TENSOR_AND_MODEL")]
    assert composed(tmp_path, exchange) == described(of_experts)
