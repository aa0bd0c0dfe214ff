"""Lengths and sequences with which an engine does not start, by its own numbers."""

from __future__ import annotations

import re

import pytest

from presim.errors import InputError
from presim.serving.kv.kv_groups import pool
from presim.serving.kv.kv_layers import KvLayer
from presim.serving.kv.startup import model_length
from presim.serving.model_lookup import find
from presim.serving.serving_plan import AUTO_LENGTH, ServingPlan

MODEL = find("llama3-8b")  # 131,072 tokens
PAGES = pool([KvLayer("full", 4096, count=32)], 16)


def length(blocks: int, asked: int | None = None, *, states: bool = False, **fields: object) -> int:
    plan = ServingPlan(max_model_len=asked, **fields)  # type: ignore[arg-type]
    return model_length(MODEL, plan, PAGES, blocks, states=states)


def test_the_model_decides_where_the_cache_holds_its_length() -> None:
    assert length(8193) == length(8193, AUTO_LENGTH) == 131072


def test_a_length_above_the_cache_is_refused_with_what_fits() -> None:
    """The null block holds nothing, so 1,479 pages are 1,478 blocks of 16 tokens."""
    with pytest.raises(InputError, match=r"29,000 tokens needs 3\.54 GiB .* 2\.89 GiB are .* at most 23,648 tokens"):
        length(1479, 29_000)
    assert length(1479, 23_648) == 23_648


def test_auto_is_what_the_cache_holds() -> None:
    assert length(1479, AUTO_LENGTH) == 23_648
    with pytest.raises(InputError, match="not even one token fits"):
        length(1, AUTO_LENGTH)


def test_other_engines_take_the_length_that_fits() -> None:
    assert length(1479, kernels="sglang") == length(1479, kernels="trtllm") == 23_648


def test_a_length_above_the_models_is_refused() -> None:
    with pytest.raises(InputError, match=re.escape("--max-model-len 131,073 is above the 131,072 tokens of llama3-8b")):
        length(1 << 20, 131_073)


def test_each_sequence_needs_a_page_for_its_state() -> None:
    with pytest.raises(InputError, match=r"each of 1,024 sequences needs a page for its state, .* 856 pages"):
        length(856, 4096, states=True, max_num_seqs=1024)
    assert length(856, 4096, states=True, max_num_seqs=512) == 4096
    assert length(856, 4096, states=True, max_num_seqs=1024, cuda_graphs=False) == 4096
