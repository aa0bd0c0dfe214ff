"""Transformer layer tables of vidur (MIT) and Frontier (MIT); times in ms.

vidur rounds to 1 us and runs in fp16. Of Frontier's tables only those with kernel times are read; the others include
host time. Rows shorter than 5 us are dominated by rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row, csv_rows, number, positive_integers, sample
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Elementwise, Gemm, Index, Normalization, Signature

_VIDUR_GPUS = {"a100": "a100-80gb-sxm", "h100": "h100-sxm", "a40": "a40"}
_FRONTIER_GPUS = {"h800": "h800", "rtx_pro_6000": "rtx-pro-6000"}
_SIZES = ("num_tokens", "n_embd", "n_expanded_embd", "num_tensor_parallel_workers")
_LEAST_NS = 5e3
_LAYER_NORM = "aten::native_layer_norm"
_OF_PLAIN_LAYERS = ("gelu", "layer_norm")  # of models without gates; gated models use library kernels


def recognises(root: Path) -> bool:
    """Whether a folder is a checkout of one of the two datasets."""
    return bool(files(root))


def files(root: Path) -> list[Path]:
    """The tables that are read."""
    folder = root / "data/profiling/compute"
    return [*sorted(folder.glob("*/*/*/mlp.csv")), *sorted(folder.glob("*/*/linear_op_kernel_only.csv"))]


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """At most ``limit`` rows of each table; 0: all."""
    for path in files(root):
        vidur = path.name == "mlp.csv"
        folder = path.relative_to(root / "data/profiling/compute").parts[0]
        gpu = (_VIDUR_GPUS if vidur else _FRONTIER_GPUS).get(folder)
        parts = ("add", "gelu", "layer_norm", "mlp_up_proj", "mlp_down_proj") if vidur else ("norm", "embedding")
        for row in sample(list(csv_rows(path)), limit, "/".join(path.parts[-3:])) if gpu else ():
            yield from _row(row, str(gpu), "vidur" if vidur else "frontier", parts)


def _row(row: Row, gpu: str, source: str, parts: tuple[str, ...]) -> Iterator[Measurement | str]:
    if positive_integers(row, *_SIZES) is None:
        yield "num_tokens, n_embd, n_expanded_embd or num_tensor_parallel_workers missing"
        return
    for part, column, work in _works(row):
        latency = number(row, f"time_stats.{column}.median")
        whole_table = (
            part != "embedding" or row["num_tensor_parallel_workers"] == "1"
        )  # otherwise several kernels apply the mask
        plain = part not in _OF_PLAIN_LAYERS or row.get("use_gated_mlp") == "False"
        if part not in parts or not latency or not whole_table or not plain:
            continue
        if latency * 1e6 < _LEAST_NS:
            yield "shorter than 5 us, which the rounding blurs"
        else:
            yield Measurement(gpu=gpu, signature=work, duration_ns=latency * 1e6, source=source)


def _works(row: Row) -> list[tuple[str, str, Signature]]:
    sizes = positive_integers(row, *_SIZES)
    assert sizes is not None  # `_row` looks
    tokens, width, wide, split = sizes
    hidden, inner = tokens * width, tokens * wide // split
    gated = 2 if row.get("use_gated_mlp") == "True" else 1
    expanded = wide // split
    half = "float16"
    works: list[tuple[str, str, Signature]] = [
        ("add", "add", Elementwise(4 * hidden, 2 * hidden, hidden, half, operator="aten::add")),
        ("gelu", "mlp_act", Elementwise(2 * inner, 2 * inner, inner, half, operator="aten::gelu")),
        ("norm", "input_layernorm", Normalization(2 * hidden, 2 * hidden, hidden, half, row=width)),
        (
            "layer_norm",
            "input_layernorm",
            Normalization(2 * hidden, 2 * hidden, hidden, half, operator=_LAYER_NORM, row=width),
        ),
        ("embedding", "emb", Index(2 * hidden, 2 * hidden, hidden, half, operator="aten::embedding")),
        ("mlp_up_proj", "mlp_up_proj", Gemm(tokens, expanded * gated, width, 1, half, layout="NT")),
        ("mlp_down_proj", "mlp_down_proj", Gemm(tokens, width, expanded, 1, half, layout="NT")),
    ]
    return works
