"""Readers of aiconfigurator's tables of inference frameworks' kernels; see `operator_tables` for what they yield."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from operator_tables import Case, Rows, evenly
from presim.trace.signatures import Attention, Collective, Elementwise, Gemm

_GPUS = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200",
    "a100_sxm": "a100-80gb-sxm",
    "b200_sxm": "b200",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
_HALF = ("bfloat16", "float16", "half")
_FUSED = re.compile("fa2|fa3|fa4|flash_attention|flash_attn|trtllm_mha|trtllmprefill|trtllmdecode")


def aiconfigurator(root: Path, count: int) -> Iterator[Case]:
    """Products, attention and NCCL of inference frameworks; times of kernels inside CUDA graphs."""
    for folder, gpu in _GPUS.items():
        for table in sorted((root / "data" / folder).glob("*/*/*/*.parquet")):
            framework = table.parts[-3]
            reader = _READERS.get(table.stem)
            if reader is not None:
                yield from reader(_parquet(table), gpu, framework, count)


def _parquet(path: Path) -> Rows:
    rows: Rows = pq.read_table(path).to_pylist()
    return rows


def _gemm(rows: Rows, gpu: str, framework: str, count: int) -> Iterator[Case]:
    for row in evenly([row for row in rows if row["gemm_dtype"] in _HALF], count):
        product = Gemm(m=row["m"], n=row["n"], k=row["k"], batch=1, dtype="bfloat16", layout="NT")
        large = " (all sides >= 512)" if min(row["m"], row["n"], row["k"]) >= 512 else " (a side < 512)"
        yield Case(gpu, "gemm bf16" + large, framework, (product,), row["latency"] * 1e-3)


def _attention(rows: Rows, gpu: str, framework: str, count: int, decode: bool = False) -> Iterator[Case]:
    plain = [row for row in rows if row["attn_dtype"] in _HALF and row.get("kv_cache_dtype", "half") in _HALF]
    plain = [row for row in plain if _FUSED.search(row["kernel_source"]) and row["head_dim"] <= 256]
    for row in evenly(plain, count):
        heads, length = row["num_heads"], row["isl"]
        cached = "num_key_value_heads" in row
        kv_heads = (row["num_key_value_heads"] or heads) if cached else heads
        kv_length = length + (row["step"] if decode else 0)
        work = Attention(
            direction="forward",
            batch=row["batch_size"],
            heads=heads,
            kv_heads=kv_heads,
            q_len=length,
            kv_len=kv_length,
            head_dim=row["head_dim"],
            v_head_dim=row["head_dim"],
            causal=cached,
            dtype="bfloat16",
            backend="flash" if gpu in ("a100-80gb-sxm", "l40s") else "flash3",
            window=int(row.get("window_size") or 0),
        )
        written = 4 * row["batch_size"] * kv_heads * row["head_dim"] * length
        cache = Elementwise(bytes_read=written, bytes_written=written, elements=written // 2, dtype="bfloat16")
        kind = "attention decode" if decode else f"attention forward (length {'>=' if length >= 512 else '<'} 512)"
        yield Case(gpu, kind, framework, (work, cache) if cached else (work,), row["latency"] * 1e-3)


def _decode(rows: Rows, gpu: str, framework: str, count: int) -> Iterator[Case]:
    return _attention(rows, gpu, framework, count, decode=True)


def _nccl(rows: Rows, gpu: str, framework: str, count: int) -> Iterator[Case]:
    names = {"alltoall": "all_to_all"}
    for row in evenly([row for row in rows if row["nccl_dtype"] == "half"], count):
        if gpu == "l40s" and row["num_gpus"] > 2:
            continue  # one slow PCIe box
        kind = names.get(row["op_name"], row["op_name"])
        work = Collective(kind=kind, bytes=2 * row["message_size"], dtype="float16", group=0)
        yield Case(gpu, f"{kind} in a node", "nccl", (work,), row["latency"] * 1e-3, ranks=row["num_gpus"])


_READERS = {
    "gemm_perf": _gemm,
    "context_attention_perf": _attention,
    "encoder_attention_perf": _attention,
    "generation_attention_perf": _decode,
    "nccl_perf": _nccl,
}
