"""Models whose layers are mostly gated delta nets: parameters, KV cache, states, and what a step takes."""

from __future__ import annotations

import dataclasses

import pytest

from presim.errors import InputError
from presim.hardware.choose import choose_cluster
from presim.serving.model import Model, find
from presim.serving.plan import Plan
from presim.serving.prompts import prefill
from presim.serving.steps import layers
from presim.serving.steps.memory import lay_out
from presim.serving.steps.times import build

PLAN = Plan(tp=4, weights="fp8-block", max_num_seqs=64)


def model() -> Model:
    return find("Qwen/Qwen3.5-397B-A17B")


def test_its_name_states_its_parameters() -> None:
    one = model()
    assert one.experts is not None
    shared = one.dense_parameters + one.embedding_parameters
    assert (shared + one.expert_parameters) / 1e9 == pytest.approx(397, rel=0.005)
    chosen = one.layers * one.experts.chosen * 3 * one.hidden * one.experts.width
    assert (shared + chosen) / 1e9 == pytest.approx(17, rel=0.03)


def test_only_layers_with_attention_have_keys_and_values() -> None:
    one = model()
    assert one.layers * one.kv_elements == one.layers // 4 * 2 * one.kv_heads * one.head_dim
    assert layers.full_layers(one, one.layers) == 15


def test_states_take_memory_and_time_by_sequence_and_not_by_context() -> None:
    one, cluster = model(), choose_cluster(gpu="b200", world_size=4)
    assert one.recurrent is not None
    state = 45 * one.recurrent.state_bytes // PLAN.tp
    memory = lay_out(one, PLAN, cluster.gpu)
    least_tokens = state // 45 // (2 * 2 * one.head_dim * one.kv_heads // min(PLAN.tp, one.kv_heads))
    assert least_tokens <= memory.pool.block_tokens < 1.05 * least_tokens  # a page holds a state, or so many tokens
    assert memory.pool.pages(memory.pool.block_tokens) == 1 + 3 * 2  # in each of 3 groups, two at most
    times = build(one, PLAN, cluster).times
    without = dataclasses.replace(one, recurrent=None, layers=15)
    plain = build(without, PLAN, cluster).times
    least_ns = 64 * 2 * state / cluster.gpu.memory_bytes_per_s * 1e9
    for keys in (1024, 65536):
        extra = times.decode_ns[6, keys.bit_length() - 1] - plain.decode_ns[6, keys.bit_length() - 1]
        assert least_ns < extra < 2 * least_ns


def test_its_prompts_are_not_split_over_ranks() -> None:
    with pytest.raises(InputError, match="gated delta nets, whose states pass from chunk to chunk"):
        prefill.check(model(), Plan(), 4, [1000])
