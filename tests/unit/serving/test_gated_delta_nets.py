"""Models whose layers are mostly gated delta nets: parameters, KV cache, states, and what a step takes."""

from __future__ import annotations

import msgspec
import pytest

from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.kept_bytes import model_token_bytes, state_bytes, token_bytes
from presim.serving.model_lookup import Model, find
from presim.serving.prompts import prefill
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.engine_memory import lay_out
from presim.serving.steps.times import build

PLAN = ServingPlan(tp=4, weights="fp8-block", max_num_seqs=64)


def model() -> Model:
    return find("Qwen/Qwen3.5-397B-A17B")


def test_its_name_states_its_parameters() -> None:
    assert model().parameters / 1e9 == pytest.approx(397, rel=0.005)
    assert model().active_parameters / 1e9 == pytest.approx(17, rel=0.03)


def test_only_layers_with_attention_have_keys_and_values() -> None:
    """2 KV heads of 256, in 15 of 60 layers."""
    assert model_token_bytes(model(), "bf16", "hopper") == 15 * 2 * 2 * 256 * 2
    assert sum(count for layer, count in model().counts() if layer.cached) == 15


def test_states_take_memory_and_time_by_sequence_and_not_by_context() -> None:
    one, cluster = model(), choose_cluster(gpu="b200", world_size=4)
    state = 45 * state_bytes(one.recurrent[0], one.state_type, PLAN.tp)
    memory = lay_out(one, PLAN, cluster.gpu)
    attends = next(layer for layer in one.kinds if layer.cached)
    least_tokens = state // 45 // token_bytes(attends.cached[0], "bf16", cluster.gpu.architecture, PLAN.tp)
    assert least_tokens <= memory.pool.block_tokens < 1.05 * least_tokens  # a page holds a state, or so many tokens
    assert memory.pool.pages(memory.pool.block_tokens) == 1 + 3 * 2  # in each of 3 groups, two at most
    times = build(one, PLAN, cluster).times
    attends = tuple(kind for kind in one.order if one.kinds[kind].cached)
    plain = build(msgspec.structs.replace(one, order=attends), PLAN, cluster).times
    least_ns = 64 * 2 * state / cluster.gpu.memory_bytes_per_s * 1e9
    for keys in (1024, 65536):
        extra = times.decode_ns[6, keys.bit_length() - 1] - plain.decode_ns[6, keys.bit_length() - 1]
        assert 0.95 * least_ns < extra < 2 * least_ns


def test_its_prompts_are_not_split_over_ranks() -> None:
    with pytest.raises(InputError, match="recurrent layers, whose states pass from chunk to chunk"):
        prefill.check(model(), ServingPlan(), 4, [1000])
