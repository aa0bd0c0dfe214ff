"""Options of engines that prefill and of engines that decode in disaggregated runs of InferenceMAX.

Such runs start by recipes of https://github.com/NVIDIA/srt-slurm (c88ef7316, folder recipes; SGLang's and
TensorRT-LLM's) and of https://github.com/SemiAnalysisAI/InferenceX (multi_node/srt-slurm-recipes; vLLM's). All of them
keep the cache in 8 bits and no prefixes. Recipes are told apart by what they have in common: the engine, GPU, types,
prompt, and whether attention is data-parallel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Row = Mapping[str, str]
Options = dict[str, Any]
Part = Literal["prefill", "decode"]
_LONG = 8192  # tokens of the longer prompts
_MOST_SEQUENCES = 2048


def options_of_part(row: Row, engine: str, part: Part) -> Options:
    """The fields of a plan that the recipe of a row sets for one part of its engines.

    ``engine``: vllm, sglang or trtllm.
    """
    options: Options = {"cache": "fp8", "prefix_caching": False}
    if engine == "trtllm":
        return {**options, **_trtllm(row, part)}
    if engine == "sglang":
        return {**options, **_sglang(row, part)}
    return {**options, **_vllm(row, part)}


def _trtllm(row: Row, part: Part) -> Options:
    """``max_num_tokens`` and ``max_batch_size`` of each rank; engines that prefill do not schedule ahead."""
    if part == "decode":
        sequences = _number(row, "decode_batch")
        return {"max_num_seqs": min(sequences, _MOST_SEQUENCES)} if sequences else {}
    is_long, is_b200 = _number(row, "isl") >= _LONG, row.get("gpu", "").startswith("B200")
    tokens, sequences = (16640, 2) if is_long else (16384, 16)
    if is_b200 and _is_fp8(row):
        tokens, sequences = (8320, 1) if is_long else (16384, 16)
    elif is_b200:
        tokens, sequences = (16896, 2) if is_long else (10240, 8)
    return {"max_num_batched_tokens": tokens, "max_num_seqs": sequences, "async_scheduling": False}


def _sglang(row: Row, part: Part) -> Options:
    """``chunked-prefill-size``, which ranks of data-parallel attention divide, and ``max-prefill-tokens``.

    Recipes without data-parallel attention have ``fp8-gemm-backend: flashinfer_trtllm`` on GB200 and GB300, and poll
    for requests every tenth step where they prefill.
    """
    dp = max(_number(row, f"{part}_attn_dp"), 1)
    is_grace = row.get("gpu", "").startswith("GB")
    options: Options = {}
    if is_grace and dp == 1 and _is_fp8(row):
        options["fp8_products"] = "flashinfer"
    if part == "decode":
        return options
    is_long = _number(row, "isl") >= _LONG
    if dp > 1:
        chunk, prompts = _sglang_ranks(row, is_grace=is_grace, is_long=is_long)
        return {**options, "max_num_batched_tokens": chunk // dp, "max_prefill_tokens": prompts}
    chunk = 8192 if not is_long else 32768 if _is_fp8(row) else 24576
    prompts = chunk if _is_fp8(row) else 16384
    return {
        **options,
        "max_num_batched_tokens": chunk,
        "max_prefill_tokens": prompts,
        "scheduler_recv_interval": 10,
    }


def _sglang_ranks(row: Row, *, is_grace: bool, is_long: bool) -> tuple[int, int]:
    """Both sizes in recipes with data-parallel attention."""
    if not is_grace:
        return (65536, 8192) if is_long and _is_fp8(row) else (32768, 32768)
    if _is_fp8(row):
        return 131072, 16384
    return (131072, 524288) if is_long else (65536, 32768)


def _vllm(row: Row, part: Part) -> Options:
    """Engines that prefill, and those that decode on 8 ranks or more with whole experts, have attention data-parallel.

    Rows say `tp` for these ranks (`disagg-gb200-1p1d-dep4-dep16.yaml` has `data-parallel-size: 16`).
    """
    tp, ep = _number(row, f"{part}_tp"), _number(row, f"{part}_moe_ep")
    if tp == ep > 1 and (part == "prefill" or tp >= 8):
        return {"tp": 1, "dp": tp, "ep": True}
    return {}


def _is_fp8(row: Row) -> bool:
    return row.get("gemm_quant", "").startswith("fp8")


def _number(row: Row, name: str) -> int:
    return int(float(row.get(name) or 0))
