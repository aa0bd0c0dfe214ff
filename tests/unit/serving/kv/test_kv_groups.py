"""Groups and pages equal vLLM's own (0.33), whose answers stand in vllm_groups.json (`support.kv_layouts` asks it)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.serving.kv.kv_groups import Pool, pool
from presim.serving.kv.kv_layers import KvLayer, every_layer, kv_layers, runs
from presim.serving.model_lookup import find
from support.kv_layouts import IN_FLIGHT, LAYOUTS, LENGTH, STATES, Layout

ANSWERS = json.loads((Path(__file__).parent / "vllm_groups.json").read_text())


def pool_of(layout: Layout, **limits: int) -> Pool:
    return pool(
        layout.layers, layout.block_tokens, **{"in_flight_tokens": IN_FLIGHT, "resident_states": STATES, **limits}
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_groups_are_those_of_vllm(name: str) -> None:
    made = pool_of(LAYOUTS[name])
    assert ANSWERS[name] == {
        "groups": sorted(sorted(group.layers) for group in made.groups),
        "block_tokens": sorted({group.spec.block_tokens for group in made.groups}),
        "page_bytes": made.page_bytes,
        "pages": made.pages(LENGTH),
    }


def test_a_page_of_qwen36_holds_784_tokens_of_16_layers() -> None:
    """As vLLM's start-up log says: 51.4 MB a page, and a request takes ceil(tokens / 784) + 3."""
    made = pool_of(LAYOUTS["qwen3.6-27b"], resident_states=1)
    assert (made.block_tokens, made.page_bytes) == (784, 784 * 4096 * 16)
    assert made.pages(10_000) == -(-10_000 // 784) + 3


def test_windows_make_room_for_ten_times_the_tokens() -> None:
    """Of Gemma-4-31B AWQ on an A100 of 80 GB vLLM logs 525,000 tokens: 10 of 60 layers keep all tokens."""
    made = pool_of(LAYOUTS["gemma-4-31b"], in_flight_tokens=2 * 2048)
    pages = (48 << 30) // made.page_bytes
    assert made.tokens(pages, 262144) == pytest.approx(525_000, rel=0.01)


def test_a_pipeline_stage_has_its_share_of_each_group() -> None:
    whole, half = pool_of(LAYOUTS["gemma-3-27b"]), pool(LAYOUTS["gemma-3-27b"].layers, 16, stages=2)
    assert [group.layers for group in half.groups] == [group.layers for group in whole.groups]
    assert whole.page_bytes / 2 <= half.page_bytes < 0.6 * whole.page_bytes


@given(st.integers(1, 1 << 20), st.sampled_from(sorted(LAYOUTS)))
def test_the_longest_request_is_the_longest_that_fits(pages: int, name: str) -> None:
    made = pool_of(LAYOUTS[name])
    longest = made.longest(pages, LENGTH)
    assert longest == 0 or made.pages(longest) <= pages
    assert longest == LENGTH or made.pages(longest + 1) > pages


@given(st.lists(st.sampled_from([KvLayer("full", 64), KvLayer("sliding", 64, 128)]), min_size=1))
def test_runs_keep_the_order(layers: list[KvLayer]) -> None:
    assert every_layer(runs(layers)) == layers


@pytest.mark.parametrize("name", ["llama3-8b", "gpt-oss-20b", "qwen3-next-80b-a3b", "deepseek-v3.2"])
def test_each_layer_of_a_known_model_keeps_something(name: str) -> None:
    model = find(name)
    layers = kv_layers(model)
    assert sum(layer.count for layer in layers) == model.layers
    assert all(layer.token_bytes or layer.state_bytes for layer in layers)
