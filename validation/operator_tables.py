"""Readers of public tables of measured operators and collectives. Each yields `Case`s, sampled evenly.

Every reader takes the folder of one public dataset, laid out as in its repository. Nothing is stored.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from presim.trace.signatures import (
    Attention,
    Collective,
    Elementwise,
    Gemm,
    GroupedGemm,
    Index,
    Normalization,
    Signature,
    Softmax,
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One measurement: work, GPU and duration."""

    gpu: str  # catalogue id
    kind: str  # line of the report, e.g. "gemm bf16"
    source: str  # what measured it: framework, dataset
    signatures: tuple[Signature, ...]
    seconds: float
    launch_s: float = 0.0  # of host time within the measurement, where the dataset times with events
    ranks: int = 1
    per_node: int = 8
    fabric: str = ""  # catalogue id; empty: the one usual for the GPU


Rows = list[dict[str, Any]]


def evenly(rows: Rows, count: int) -> Rows:
    """At most ``count`` rows, evenly spaced over the table."""
    step = max(len(rows) // count, 1)
    return rows[step // 2 :: step]


# Device name -> catalogue id and host time of a launch (s), which this dataset's event timing holds.
_NEUSIGHT = {
    "NVIDIA H100 80GB HBM3": ("h100-sxm", 15e-6),
    "NVIDIA A100 80GB PCIe": ("a100-80gb-pcie", 18e-6),
    "NVIDIA A100-PCIE-40GB": ("a100-40gb-pcie", 18e-6),
    "NVIDIA L4": ("l4", 10e-6),
    "Tesla V100-PCIE-32GB": ("v100-32gb-sxm", 15e-6),
}
_NEUSIGHT_READS = {"add": 2, "mul": 2, "div": 2}


def neusight(root: Path, count: int) -> Iterator[Case]:
    """Single operators in fp32 without TF32."""
    for split, name in [("test", "linear"), ("test", "bmm"), ("*", "elem"), ("*", "ln"), ("*", "softmax")]:
        for path in sorted((root / "data/dataset").glob(f"{split}/{name}.csv")):
            rows = [row for row in _csv(path) if row["Device"] in _NEUSIGHT and row["OPName"] not in ("pow", "powu")]
            for row in evenly(rows, count):
                gpu, launch = _NEUSIGHT[row["Device"]]
                kind, work = _neusight_work(name, row)
                yield Case(gpu, kind, "neusight", (work,), float(row["Latency"]) * 1e-3, launch)


def _neusight_work(name: str, row: dict[str, Any]) -> tuple[str, Signature]:
    if name in ("linear", "bmm"):
        m, n, k, batch = (int(row[key]) for key in ("M", "N", "K", "B"))
        return "gemm fp32", Gemm(m=m, n=n, k=k, batch=batch, dtype="float32", layout="NT" if name == "linear" else "NN")
    elements = int(row["B"]) * int(row["H"])
    reads = _NEUSIGHT_READS.get(row["OPName"], 1)
    moved = {"bytes_read": 4 * reads * elements, "bytes_written": 4 * elements}
    sizes = {**moved, "elements": elements, "dtype": "float32"}
    if name == "elem":
        return "elementwise", Elementwise(**sizes, operator=f"aten::{row['OPName'].removesuffix('u')}")
    return ("normalization", Normalization(**sizes)) if name == "ln" else ("softmax", Softmax(**sizes))


def vidur(root: Path, count: int) -> Iterator[Case]:
    """Parts of transformer layers in fp16, and NCCL on a DGX."""
    gpus = {"a100": "a100-80gb-sxm", "h100": "h100-sxm", "a40": "a40"}
    for path in sorted((root / "data/profiling/compute").glob("*/*/*/mlp.csv")):
        for row in evenly(_csv(path), max(count // 4, 1)):
            yield from _layer_parts(row, gpus[path.parts[-4]], "vidur", ("add", "gelu"))
    for folder, gpu in (("a100_dgx", "a100-80gb-sxm"), ("h100_dgx", "h100-sxm")):
        for kind in ("all_reduce", "send_recv"):
            rows = _csv(root / "data/profiling/network" / folder / f"{kind}.csv")
            rows = [row for row in rows if row["num_workers"] == row["devices_per_node"]]
            rows = [row for row in rows if int(row["size"]) >= 1 << 20]  # below, a few us of event timing show
            for row in evenly(rows, count):
                work = Collective(kind=kind, bytes=int(row["size"]), dtype="float16", group=0)
                seconds = float(row[f"time_stats.{kind}.median"]) * 1e-3
                yield Case(gpu, f"{kind} in a node", "vidur", (work,), seconds, ranks=int(row["num_workers"]))


def frontier(root: Path, count: int) -> Iterator[Case]:
    """Parts of transformer layers on H800, kernel time."""
    for path in sorted((root / "data/profiling/compute/h800").glob("*/linear_op_kernel_only.csv")):
        for row in evenly(_csv(path), max(count // 4, 1)):
            yield from _layer_parts(row, "h800", "frontier", ("norm", "embedding"))


def _layer_parts(row: dict[str, Any], gpu: str, source: str, parts: tuple[str, ...]) -> Iterator[Case]:
    """The memory-bound parts of a layer. Times in ms; vidur rounds to 1 us, so times below 5 us are excluded."""
    tokens, width = int(row["num_tokens"]), int(row["n_embd"])
    hidden = tokens * width
    inner = tokens * int(row["n_expanded_embd"]) // int(row["num_tensor_parallel_workers"])
    plain = row.get("use_gated_mlp", "True") == "False"
    half = {"dtype": "float16"}
    works: dict[str, tuple[str, str, Signature]] = {
        "add": ("add", "elementwise", Elementwise(4 * hidden, 2 * hidden, hidden, **half, operator="aten::add")),
        "gelu": ("mlp_act", "elementwise", Elementwise(2 * inner, 2 * inner, inner, **half, operator="aten::gelu")),
        "norm": ("input_layernorm", "normalization", Normalization(2 * hidden, 2 * hidden, hidden, **half)),
        "embedding": ("emb", "index", Index(2 * hidden, 2 * hidden, hidden, **half, operator="aten::embedding")),
    }
    for part in parts:
        column, kind, work = works[part]
        time = float(row.get(f"time_stats.{column}.median") or 0) * 1e-3
        whole = part != "embedding" or row["num_tensor_parallel_workers"] == "1"  # else several kernels mask it
        if time >= 5e-6 and whole and (part != "gelu" or plain):
            yield Case(gpu, kind, source, (work,), time)


def _csv(path: Path) -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def simumax(root: Path, count: int) -> Iterator[Case]:
    """Training's products with weight gradients, attention both ways, and grouped products, as shares of peak."""
    for name, gpu in (("b200_bf16_ceperm", "b200"), ("a100_pcie", "a100-80gb-pcie")):
        operators = json.loads((root / f"configs/system/{name}.json").read_text())["accelerator"]["op"]
        for operator in ("matmul", "sdp_fwd", "sdp_bwd"):
            reader = _simumax_gemm if operator == "matmul" else _simumax_attention
            entries = list(operators[operator]["accurate_efficient_factor"].items())
            for key, share in entries[: 10 * count]:
                sizes = dict(part.split("=") for part in key.split(", "))
                kind, flops, work = reader(sizes, operator)
                yield Case(gpu, kind, "simumax", (work,), flops / (share * operators[operator]["tflops"] * 1e12))
        for key, share in operators["group_matmul"]["accurate_efficient_factor"].items():
            sizes = dict(part.split("=") for part in key.split(", "))
            kind, flops, work = _simumax_grouped(sizes)
            yield Case(gpu, kind, "simumax", (work,), flops / (share * operators["group_matmul"]["tflops"] * 1e12))


def _simumax_gemm(sizes: dict[str, str], _: str) -> tuple[str, float, Signature]:
    m, n, k, batch = (int(sizes[key]) for key in "mnkb")
    layout = {"TN": "NT", "NN": "NN", "NT": "TN"}[sizes["layout"]]  # column-major there
    gradient = sizes["accumulate"] == "True"
    out = "float32" if sizes["out_dtype"] == "fp32" else "bfloat16"
    work = Gemm(m, n, k, batch, "bfloat16", out_dtype=out, layout=layout, accumulate=gradient)
    return "gemm weight gradient" if gradient else "gemm in training", work.flops, work


def _simumax_attention(sizes: dict[str, str], operator: str) -> tuple[str, float, Signature]:
    backward = operator == "sdp_bwd"
    batch, length, heads, kv_heads, dim, v_dim = (
        int(sizes[key]) for key in ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
    )
    work = Attention(
        "backward" if backward else "forward",
        batch, heads, kv_heads, length, length, dim, v_dim, True, "bfloat16", "cudnn",
    )  # fmt: skip
    flops = 2.0 * batch * heads * length * length * (dim + v_dim) * (2.5 if backward else 1)  # causal counted whole
    return f"attention {work.direction} in training", flops, work


def _simumax_grouped(sizes: dict[str, str]) -> tuple[str, float, Signature]:
    groups, m, n, k = (int(sizes[key]) for key in ("ng", "M", "N", "K"))
    flops = 2.0 * groups * m * n * k
    if sizes["stage"] == "bwd_grad_act":
        n, k = k, n
    return "grouped gemm", flops, GroupedGemm(groups, groups * m, n, k, "bfloat16")
