"""Models that are no plain decoders: mixtures of experts behind dense blocks, encoder-decoders, images beside words."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import pytest

from presim import hardware
from presim.composition.capture_comparison import work
from presim.composition.compose import compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.sizes import Witnesses, choose_witnesses
from presim.composition.graph.take import take
from presim.composition.plan import Plan
from presim.trace.signatures import Attention, GroupedGemm
from presim.trace.trace_invariants import check

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=8)
EXPERTS = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 9,
    "first_k_dense_replace": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "vocab_size": 512,
}
TRANSLATOR = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "d_model": 128,
    "d_ff": 256,
    "d_kv": 32,
    "num_heads": 4,
    "num_layers": 3,
    "num_decoder_layers": 3,
    "vocab_size": 512,
    "decoder_start_token_id": 0,
}
IMAGES = {
    "architectures": ["ViTForImageClassification"],
    "model_type": "vit",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "image_size": 64,
    "patch_size": 16,
}


@functools.cache
def graph(name: str) -> OperatorGraph:
    """The graph of one of the models above."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps({"EXPERTS": EXPERTS, "TRANSLATOR": TRANSLATOR, "IMAGES": IMAGES}[name]))
        return take(str(path))


@pytest.mark.torch_cuda
def test_experts_behind_dense_blocks() -> None:
    """Dense and sparse blocks are apart and numbered as in the model; each token goes to so many experts."""
    taken = graph("EXPERTS")
    blocks = [(one.first, one.count) for one in taken.segments if one.name and not one.backward]
    assert blocks == [(0, 2), (2, 7)]
    (trace,) = compose(taken, Plan(sequence=512, micro_batch=2), CLUSTER).traces
    check(trace)
    grouped = [one for _, one in work(trace).elements() if isinstance(one, GroupedGemm)]
    tokens, chosen, hidden, inner = 2 * 512, 4, 256, 64
    assert len(grouped) == 7 * 6
    assert sum(one.flops for one in grouped) == 7 * 3 * 2 * tokens * chosen * hidden * 3 * inner
    attention = next(one for _, one in work(trace) if isinstance(one, Attention))
    assert (attention.head_dim, attention.v_head_dim) == (48, 32)


@pytest.mark.torch_cuda
def test_an_encoder_and_a_decoder_are_two_lists_of_blocks() -> None:
    taken = graph("TRANSLATOR")
    counts: dict[str, int] = {}
    for one in taken.segments:
        if one.name and not one.backward:
            counts[one.name] = counts.get(one.name, 0) + one.count
    assert counts == {"encoder.block.*": 3, "decoder.block.*": 3}
    (trace,) = compose(taken, Plan(sequence=256), CLUSTER).traces
    check(trace)
    directions = [one.direction for _, one in work(trace).elements() if isinstance(one, Attention)]
    assert directions.count("forward") == directions.count("backward") == 3 + 2 * 3


@pytest.mark.torch_cuda
def test_images_have_no_sequence() -> None:
    taken = graph("IMAGES")
    few, many = (work(compose(taken, Plan(sequence=length), CLUSTER).traces[0]) for length in (256, 4096))
    assert few == many
    assert sum(isinstance(one, Attention) for _, one in few.elements()) == 2 * 6


def test_witnesses_are_far_from_a_model_s_sizes() -> None:
    """11,008 is 2 x 5,503 + 2: another sequence has to be traced."""
    assert all(one.sequence != 5503 for one in choose_witnesses([4096, 11008]))
    assert choose_witnesses([4096, 14336])[0].sequence == 5503


def test_padded_rows_are_found_in_memory_only() -> None:
    witnesses = Witnesses(1013, 5503)
    assert witnesses.describe_padded(2 * 1013 * 5503 * 5504) == "2*B*S*S+2*B*S"
    assert witnesses.describe(11007) == "2*S+1"
