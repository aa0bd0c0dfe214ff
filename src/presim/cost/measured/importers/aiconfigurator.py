"""Tables of ai-dynamo/aiconfigurator (Apache-2.0): products and attention in inference frameworks; latency in ms.

Kernels inside CUDA graphs, forward only. Products are PyTorch's linear layer (cuBLAS) in all three frameworks.
Attention is FlashAttention 2 and 3, FlashInfer or TensorRT-LLM's; the last is left out if the table does not name the
kernel. Attention times include writing keys and values to the cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row, number, parquet_rows, positive_integers, sample
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Attention, Elementwise, Gemm

_GPUS = {
    "h100_sxm": "h100-sxm", "h200_sxm": "h200", "a100_sxm": "a100-80gb-sxm", "b200_sxm": "b200", "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}  # fmt: skip
_IMPORTED = {
    "b300_sxm": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
}  # not fitted
# On Hopper FlashAttention 3. On Blackwell FlashAttention 4 and TensorRT-LLM's, listed as cuDNN's.
_LIBRARIES = {"a100-80gb-sxm": "flash", "l40s": "flash", "rtx-pro-6000": "flash"}
_LIBRARIES |= dict.fromkeys(("b200", "b300", "gb200", "gb300"), "cudnn")
_HALF = ("bfloat16", "float16", "half")
_FUSED = re.compile("fa2|fa3|fa4|flash_attention|flash_attn|trtllm_mha|trtllmprefill|trtllmdecode")
_COLUMNS = (
    "kernel_source", "gemm_dtype", "m", "n", "k", "latency", "attn_dtype", "kv_cache_dtype", "head_dim", "num_heads",
    "num_key_value_heads", "batch_size", "isl", "step", "window_size",
)  # fmt: skip


def recognises(root: Path) -> bool:
    """Whether a folder is a checkout of this dataset."""
    return any((_data(root) / folder).is_dir() for folder in _GPUS | _IMPORTED)


def _data(root: Path) -> Path:
    """The folder of the systems, in a checkout of tables or in the installed package."""
    inside = root / "systems" / "data"
    return inside if inside.is_dir() else root / "data"


def gpu_of(folder: str) -> str:
    """The catalogue id of a system's folder name; empty if the catalogue has none."""
    return (_GPUS | _IMPORTED).get(folder, "")


def files(root: Path) -> list[Path]:
    """The tables that are read."""
    folders = (_data(root) / folder for folder in _GPUS)
    return sorted(path for folder in folders for path in folder.glob("*/*/*/*.parquet") if path.stem in _READERS)


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """At most ``limit`` rows of each kind in each table; 0: all."""
    for path in files(root):
        gpu, framework = _GPUS[path.relative_to(_data(root)).parts[0]], path.parts[-3]
        rows = parquet_rows(path, _COLUMNS)
        yield from _READERS[path.stem](rows, gpu, f"aiconfigurator/{framework}", limit)


def read_all(root: Path) -> Iterator[Measurement | str]:
    """All rows, including GPUs without packaged models. Unread rows are counted."""
    for folder, gpu in sorted((_GPUS | _IMPORTED).items()):
        for path in sorted((_data(root) / folder).glob("*/*/*/*.parquet")):
            if path.stem not in _READERS:
                yield f"a table that is not read: {path.stem}"
                continue
            rows = parquet_rows(path, _COLUMNS)
            measurements = list(_READERS[path.stem](rows, gpu, f"aiconfigurator/{path.parts[-3]}", 0))
            yield from measurements
            yield from ["a type, kernel or cache that is not read"] * (len(rows) - len(measurements))


def _products(rows: list[Row], gpu: str, source: str, limit: int) -> Iterator[Measurement | str]:
    for dtype, names in (("bfloat16", _HALF), ("float8_e4m3fn", ("fp8",))):
        if dtype.startswith("float8") and source.endswith("trtllm"):
            continue  # these include the quantisation of the input
        members = [row for row in rows if row["gemm_dtype"] in names]
        for row in sample(members, limit, f"{gpu} {source} {dtype}"):
            sizes, latency = positive_integers(row, "m", "n", "k"), number(row, "latency")
            if sizes is None or latency is None:
                yield "m, n, k or latency missing"
                continue
            m, n, k = sizes
            fp8 = dtype != "bfloat16"  # by CUTLASS, with a factor per row and column
            work = Gemm(
                m, n, k, 1, dtype, out_dtype="bfloat16" if fp8 else "", layout="NT", scaling="outer" if fp8 else ""
            )
            yield Measurement(gpu=gpu, signature=work, duration_ns=latency * 1e6, source=source)


def _attention(rows: list[Row], gpu: str, source: str, limit: int) -> Iterator[Measurement | str]:
    plain = [row for row in rows if row["attn_dtype"] in _HALF and (row["kv_cache_dtype"] or "half") in _HALF]
    plain = [row for row in plain if _FUSED.search(row["kernel_source"] or "") and (row["head_dim"] or 0) <= 256]
    for row in sample(plain, limit, f"{gpu} {source} attention"):
        sizes, latency = positive_integers(row, "batch_size", "num_heads", "isl", "head_dim"), number(row, "latency")
        if sizes is None or latency is None:
            yield "batch_size, num_heads, isl, head_dim or latency missing"
            continue
        yield _attention_row(row, gpu, source, sizes, latency)


def _attention_row(row: Row, gpu: str, source: str, sizes: tuple[int, ...], latency: float) -> Measurement:
    batch, heads, length, dim = sizes
    cached = row["num_key_value_heads"] is not None  # an encoder's table has no such column, and no cache
    kv_heads = int(row["num_key_value_heads"] or heads)
    past = int(row["step"] or 0) if length == 1 else 0
    work = Attention(
        direction="forward", batch=batch, heads=heads, kv_heads=kv_heads, q_len=length, kv_len=length + past,
        head_dim=dim, v_head_dim=dim, causal=cached, dtype="bfloat16",
        backend=_LIBRARIES.get(gpu, "flash3"), window=int(row["window_size"] or 0),
        paged=cached and source.endswith("/vllm"),  # SGLang prefills from contiguous tensors
    )  # fmt: skip
    cache_bytes = 4 * batch * kv_heads * dim * length
    cache = Elementwise(cache_bytes, cache_bytes, cache_bytes // 2, "bfloat16")
    other_work = (cache,) if cached else ()
    return Measurement(gpu=gpu, signature=work, duration_ns=latency * 1e6, source=source, other_work=other_work)


_Reader = Callable[[list[Row], str, str, int], Iterator[Measurement | str]]
_READERS: dict[str, _Reader] = {
    "gemm_perf": _products,
    "context_attention_perf": _attention,
    "encoder_attention_perf": _attention,
    "generation_attention_perf": _attention,
}
