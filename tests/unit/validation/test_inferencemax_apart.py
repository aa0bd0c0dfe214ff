"""Options of engines of disaggregated runs, as their recipes set them."""

from __future__ import annotations

import pytest

from presim.studies.validation.inferencemax_apart import options_of_part

_ROW = {
    "gpu": "GB300",
    "gemm_quant": "fp8",
    "isl": "1024",
    "osl": "1024",
    "prefill_tp": "4",
    "prefill_attn_dp": "1",
    "prefill_moe_ep": "1",
    "decode_tp": "4",
    "decode_attn_dp": "1",
    "decode_moe_ep": "1",
    "decode_batch": "48",
}


def test_all_keep_the_cache_in_8_bits_and_no_prefixes() -> None:
    for engine in ("vllm", "sglang", "trtllm"):
        options = options_of_part(_ROW, engine, "decode")
        assert options["cache"] == "fp8"
        assert options["prefix_caching"] is False


def test_sglang_on_grace_takes_flashinfers_products_without_data_parallel_attention() -> None:
    assert options_of_part(_ROW, "sglang", "decode")["fp8_products"] == "flashinfer"
    assert "fp8_products" not in options_of_part({**_ROW, "gpu": "B200 SXM 180GB"}, "sglang", "decode")
    assert "fp8_products" not in options_of_part({**_ROW, "decode_attn_dp": "8"}, "sglang", "decode")
    assert "fp8_products" not in options_of_part({**_ROW, "gemm_quant": "nvfp4"}, "sglang", "decode")


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        ({}, 8192),
        ({"isl": "8192"}, 32768),
        ({"isl": "8192", "gemm_quant": "nvfp4"}, 24576),
        ({"prefill_attn_dp": "8"}, 16384),
        ({"prefill_attn_dp": "4", "gemm_quant": "nvfp4"}, 16384),
        ({"prefill_attn_dp": "8", "gpu": "B200 SXM 180GB", "isl": "8192"}, 8192),
    ],
)
def test_ranks_of_data_parallel_attention_divide_sglangs_chunk(change: dict[str, str], tokens: int) -> None:
    assert options_of_part({**_ROW, **change}, "sglang", "prefill")["max_num_batched_tokens"] == tokens


def test_tensorrt_llm_does_not_schedule_ahead_where_it_prefills() -> None:
    prefill = options_of_part({**_ROW, "gpu": "B200 SXM 180GB", "isl": "8192"}, "trtllm", "prefill")
    assert (prefill["max_num_batched_tokens"], prefill["max_num_seqs"]) == (8320, 1)
    assert prefill["async_scheduling"] is False
    assert options_of_part(_ROW, "trtllm", "decode")["max_num_seqs"] == 48


def test_vllms_wide_engines_have_data_parallel_attention() -> None:
    wide = {**_ROW, "decode_tp": "16", "decode_moe_ep": "16", "prefill_moe_ep": "4"}
    assert options_of_part(wide, "vllm", "decode")["dp"] == 16
    assert options_of_part(wide, "vllm", "prefill")["dp"] == 4
    narrow = {**_ROW, "decode_moe_ep": "4"}
    assert "dp" not in options_of_part(narrow, "vllm", "decode")
