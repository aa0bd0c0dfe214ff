"""Models with layers that carry a state along the sequence, by the kernels of the libraries that compute them."""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from presim import hardware
from presim.composition.compose import compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import take
from presim.composition.passes import context_parallel
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.schema import Kind
from presim.trace.signatures import Fused
from presim.trace.trace_invariants import check

pytestmark = pytest.mark.torch_cuda

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=1)
SEQUENCE, BATCH = 1024, 2
MAMBA_2 = {
    "architectures": ["Mamba2ForCausalLM"],
    "model_type": "mamba2",
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "vocab_size": 512,
    "state_size": 32,
    "num_heads": 8,
    "head_dim": 64,
    "expand": 2,
    "n_groups": 1,
    "chunk_size": 256,
}
DELTA_RULE = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 64,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
KIMI_DELTA = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "pad_token_id": 0,
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "vocab_size": 512,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "linear_num_heads": 4,
    "linear_head_dim": 64,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
}


@functools.cache
def graph(name: str) -> OperatorGraph:
    """The graph of one of the models above."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps({"MAMBA_2": MAMBA_2, "DELTA_RULE": DELTA_RULE, "KIMI_DELTA": KIMI_DELTA}[name]))
        return take(str(path))


def kernels(name: str) -> list[Fused]:
    """The kernels of libraries in the last step."""
    (trace,) = compose(graph(name), Plan(sequence=SEQUENCE, micro_batch=BATCH), CLUSTER).traces
    check(trace)
    begin, end = np.flatnonzero(trace.columns["kind"] == Kind.STEP)[-2:]
    found = (trace.signatures[index] for index in trace.columns["signature"][begin:end].tolist() if index >= 0)
    return [one for one in found if isinstance(one, Fused)]


def test_mamba_2_runs_its_scan_forward_and_again_in_the_backward_pass() -> None:
    found = kernels("MAMBA_2")
    times = Counter(one.name for one in found)
    layers = 6
    assert times["_chunk_state_fwd_kernel"] == times["causal_conv1d_fwd_kernel"] == 2 * layers
    assert times["_chunk_scan_fwd_kernel"] == times["_chunk_scan_chunk_state_bwd_dx_kernel"] == layers
    tokens, heads, size, states, chunk = BATCH * SEQUENCE, 8, 64, 32, 256
    state = next(one for one in found if one.name == "_chunk_state_fwd_kernel")
    assert state.bytes_written == tokens // chunk * heads * size * states * 4
    assert state.bytes_read == tokens * (heads * size + states) * 2 + 2 * tokens * heads * 4
    assert state.product_flops == 2 * tokens * heads * size * states


def test_the_gated_delta_rule_runs_as_in_flash_linear_attention() -> None:
    """Two of four layers have it; the backward pass computes states again instead of keeping them."""
    found = kernels("DELTA_RULE")
    times = Counter(one.name for one in found)
    assert times["chunk_fwd_kernel_o"] == times["chunk_bwd_kernel_dqkwg"] == 2
    assert times["chunk_gated_delta_rule_fwd_kernel_h_blockdim64"] == times["l2norm_fwd_kernel"] == 4
    tokens, heads, size, chunk = BATCH * SEQUENCE, 8, 64, 64
    states = next(one for one in found if one.name == "chunk_gated_delta_rule_fwd_kernel_h_blockdim64")
    of_states, of_values = tokens // chunk * heads * size * size * 2, tokens * heads * size * 2
    assert states.bytes_written == of_states + of_values


@pytest.mark.long
def test_kimi_s_delta_attention_has_a_decay_for_each_channel() -> None:
    """Three of four layers have it; the backward pass makes the WY representation and the states again."""
    found = kernels("KIMI_DELTA")
    times = Counter(one.name for one in found)
    assert times["chunk_gla_fwd_kernel_o"] == times["chunk_kda_bwd_kernel_wy_dqkg_fused"] == 3
    assert times["recompute_w_u_fwd_kda_kernel"] == times["chunk_gated_delta_rule_fwd_kernel_h_blockdim64"] == 6
    tokens, heads, size, chunk = BATCH * SEQUENCE, 4, 64, 64
    sums = next(one for one in found if one.name == "chunk_local_cumsum_vector_kernel")
    assert sums.bytes_written == tokens * heads * size * 4
    scores = [one for one in found if one.name.startswith("chunk_kda_fwd_kernel_int")]
    both = 2 * 2 * tokens * heads * chunk * size  # scores of queries, and of keys among themselves
    assert sum(one.product_flops for one in scores) == 3 * both


def test_a_sequence_is_not_split_where_a_state_runs_along_it() -> None:
    with pytest.raises(InputError, match=r"pass a state along the sequence .* over 2 ranks"):
        context_parallel.apply(graph("DELTA_RULE"), 2, "all-gather")
