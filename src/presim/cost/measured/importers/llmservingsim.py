"""Prompt attention inside vLLM, measured by casys-kaist/LLMServingSim (MIT) on an H100; kernel time in ms.

One table per model and tensor parallel size, of chunks after a cached prefix. Left out and counted: decoding, whose
rows would imply reading the cache up to ten times faster than memory bandwidth. Not read: tables of layers, which
include vLLM's own overhead around a kernel (a norm of one token takes 18 us).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row, csv_rows, number, positive_integers, sample
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Attention

_GPUS = {"H100": "h100-sxm"}


def recognises(root: Path) -> bool:
    """Whether a folder is a checkout of this dataset's profiles."""
    return bool(files(root))


def files(root: Path) -> list[Path]:
    """The tables that are read."""
    return sorted(path for folder in _GPUS for path in (root / folder).glob("*/*/tp*/attention.csv"))


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """At most ``limit`` rows of each table; 0: all."""
    for path in files(root):
        parts = path.relative_to(root).parts
        for row in sample(list(csv_rows(path)), limit, "/".join(parts)):
            yield _measured(row, _GPUS[parts[0]])


def _measured(row: Row, gpu: str) -> Measurement | str:
    if row.get("is_prefill") != "True":
        return "decoding, whose lengths do not say what was read"
    shape = positive_integers(row, "n_embd", "n_q_head", "n_kv_head", "num_tensor_parallel_workers", "batch_size")
    chunk, cached = positive_integers(row, "prefill_chunk_size"), number(row, "kv_cache_size")
    latency = number(row, "time_stats.attn_prefill.median")
    if shape is None or latency is None or chunk is None or cached is None:
        return "a shape, a length or the time missing"
    if row.get("attention_backend") != "FLASH_ATTENTION":
        return f"another backend: {row.get('attention_backend')}"
    width, heads, kv_heads, split, batch = shape
    dim = width // heads
    work = Attention(
        direction="forward", batch=batch, heads=heads // split, kv_heads=max(kv_heads // split, 1), q_len=chunk[0],
        kv_len=int(cached) + chunk[0], head_dim=dim, v_head_dim=dim, causal=True, dtype="bfloat16", backend="flash3",
        paged=True,
    )  # fmt: skip
    return Measurement(gpu=gpu, signature=work, duration_ns=latency * 1e6, source="llmservingsim")
