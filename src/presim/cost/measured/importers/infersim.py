"""Kernel times of alibaba/InferSim (Apache-2.0) on H20 and H800; latency in us.

Products are DeepGEMM's in FP8 with a factor per block, plain and grouped. Attention is FlashAttention-3's, forward and
decoding. Left out and counted: decoding from an FP8 cache, and folders of kernels without a signature (latent and
sparse attention, gated delta nets).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row, csv_rows, number, positive_integers, sample
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Attention, Gemm, GroupedGemm, Signature

_GPUS = {"h20": "h20", "h800": "h800"}
_FP8 = "float8_e4m3fn"


def recognises(root: Path) -> bool:
    """Whether a folder is a checkout of this dataset."""
    return bool(files(root))


def files(root: Path) -> list[Path]:
    """The tables to read, and those whose rows are only counted."""
    return sorted((root / "bench_data").glob("*/**/*.csv"))


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """At most ``limit`` rows of each table; 0: all."""
    for path in files(root):
        parts = path.relative_to(root / "bench_data").parts
        gpu = next((_GPUS[part] for part in parts if part in _GPUS), "")
        for row in sample(list(csv_rows(path)), limit, "/".join(parts)):
            for work, column in _works(row, parts, path.stem):
                latency = number(row, column)
                if isinstance(work, str) or not latency:
                    yield work if isinstance(work, str) else f"{column} missing"
                else:
                    yield Measurement(gpu=gpu, signature=work, duration_ns=latency * 1e3, source="infersim")


def _works(row: Row, parts: tuple[str, ...], stem: str) -> list[tuple[Signature | str, str]]:
    """The pieces of work in a row with their time columns, or the reason why the row cannot be used."""
    if parts[0] == "gemm":
        return [(_product(row), "latency_us")]
    if parts[0] == "grouped_gemm":
        return _grouped(row)
    if parts[0] == "mha":
        return [(_attention(row, stem, decoding="decode" in parts), "latency_us")]
    return [(f"kernels that no signature describes: {parts[0]}", "")]


def _product(row: Row) -> Signature | str:
    sizes = positive_integers(row, "m", "n", "k")
    if sizes is None:
        return "m, n or k missing"
    m, n, k = sizes
    return Gemm(m, n, k, 1, _FP8, out_dtype="bfloat16", layout="NT", scaling="block")


def _grouped(row: Row) -> list[tuple[Signature | str, str]]:
    """Both expert layers of one rank; the first produces gate and value."""
    sizes = positive_integers(row, "num_local_experts", "tokens_per_expert", "hidden_size", "intermediate_size")
    if sizes is None:
        return [("num_local_experts, tokens_per_expert, hidden_size or intermediate_size missing", "")]
    experts, tokens, hidden, inner = sizes
    up = GroupedGemm(experts, experts * tokens, 2 * inner, hidden, _FP8, "bfloat16")
    down = GroupedGemm(experts, experts * tokens, hidden, inner, _FP8, "bfloat16")
    return [(up, "up_proj_us"), (down, "down_proj_us")]


def _attention(row: Row, stem: str, *, decoding: bool) -> Signature | str:
    """The file name holds the numbers of heads and key heads and the head dimension."""
    heads, kv_heads, dim = (int(part) for part in stem.split("-"))
    if row.get("dtype") != "bf16" or (row.get("kv_dtype") or "bf16") != "bf16":
        return "attention in another type than bf16"
    sizes = positive_integers(row, "batch_size", "kv_len") if decoding else positive_integers(row, "seq_len")
    if sizes is None:
        return "batch_size, kv_len or seq_len missing"
    batch, queries, keys = (sizes[0], 1, sizes[1]) if decoding else (1, sizes[0], sizes[0])
    return Attention("forward", batch, heads, kv_heads, queries, keys, dim, dim, True, "bfloat16", "flash3")
