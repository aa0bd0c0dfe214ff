"""Prices of typical work, kept per GPU: a change of constants shows as a difference that can be read.

After a change that is meant: ``PYTHONPATH=src:tests python tests/golden/test_prices.py`` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim import hardware
from presim.cost.chain import price_trace
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import (
    Attention,
    Collective,
    Convolution,
    Copy,
    Elementwise,
    Fused,
    Gemm,
    GroupedGemm,
    Index,
    Kernel,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Signature,
    Softmax,
    Sort,
)

FOLDER = Path(__file__).parent
GPUS = ("h100-sxm", "a100-80gb-sxm", "b200")
GROUPS = (
    Group("world", tuple(range(128)), 128),
    Group("node", tuple(range(8)), 8),
    Group("one rank a node", tuple(range(0, 128, 8)), 16),
    Group("alone", (0,), 1),
)
MIB = 1 << 20


def attention(direction: str, backend: str, length: int = 8192, **more: int) -> Attention:
    """Llama-3 8B's, at 8192 tokens."""
    return Attention(
        direction=direction, batch=1, heads=32, kv_heads=8, q_len=more.get("q_len", length), kv_len=length,
        head_dim=128, v_head_dim=128, causal=True, dtype="bfloat16", backend=backend,
    )  # fmt: skip


def product(m: int, n: int, k: int, layout: str = "NT", dtype: str = "bfloat16", **more: object) -> Gemm:
    """One product in the layout of a linear layer's forward."""
    return Gemm(m=m, n=n, k=k, batch=more.pop("batch", 1), dtype=dtype, layout=layout, **more)


def collective(kind: str, size: int, group: int = 0) -> Collective:
    """On one of GROUPS."""
    return Collective(kind=kind, bytes=size, dtype="bfloat16", group=group, peer=0)


WORK: dict[str, Signature] = {
    "gemm 8192x4096x4096": product(8192, 4096, 4096),
    "gemm 8192x14336x4096": product(8192, 14336, 4096),
    "gemm 8192x128256x4096, language model head": product(8192, 128256, 4096),
    "gemm 4096x4096x8192, weight gradient": product(4096, 4096, 8192, "TN", accumulate=True, out_dtype="float32"),
    "gemm 128x4096x4096, small batch": product(128, 4096, 4096),
    "gemm 1x4096x4096, one token": product(1, 4096, 4096),
    "gemm 8192x8192x64, small k": product(8192, 8192, 64),
    "gemm 4096x4096x4096 fp32": product(4096, 4096, 4096, dtype="float32"),
    "gemm 4096x4096x4096 tf32": product(4096, 4096, 4096, dtype="float32", compute="tf32"),
    "gemm 8192x14336x4096 fp8": product(8192, 14336, 4096, dtype="float8_e4m3fn", out_dtype="bfloat16"),
    "gemm 64 x 512x512x128": product(512, 512, 128, batch=64),
    "gemm 8191x4097x4095, off the grid": product(8191, 4097, 4095),
    "grouped gemm 8 experts": GroupedGemm(groups=8, m=16384, n=14336, k=4096, dtype="bfloat16"),
    "attention forward cudnn": attention("forward", "cudnn"),
    "attention forward flash": attention("forward", "flash"),
    "attention backward cudnn": attention("backward", "cudnn"),
    "attention backward flash": attention("backward", "flash"),
    "attention forward efficient": attention("forward", "efficient"),
    "attention one token": attention("forward", "flash", q_len=1),
    "convolution 3x3": Convolution(
        "forward", 32, 64, 64, (56, 56), (3, 3), (56, 56), (1, 1), (1, 1), 1, "bfloat16", layout="nhwc"
    ),
    "convolution depthwise 7x7": Convolution(
        "forward", 32, 96, 96, (56, 56), (7, 7), (56, 56), (1, 1), (1, 1), 96, "bfloat16", layout="nhwc"
    ),
    "add 1 KiB": Elementwise(2048, 1024, 512, "bfloat16", operator="aten::add"),
    "add 64 MiB": Elementwise(128 * MIB, 64 * MIB, 32 * MIB, "bfloat16", operator="aten::add"),
    "gelu 64 MiB": Elementwise(64 * MIB, 64 * MIB, 32 * MIB, "bfloat16", operator="aten::gelu"),
    "cat 64 MiB": Elementwise(64 * MIB, 64 * MIB, 32 * MIB, "bfloat16", operator="aten::cat"),
    "sum 64 MiB": Reduction(64 * MIB, 4096, 32 * MIB, "bfloat16", operator="aten::sum"),
    "layer norm 64 MiB": Normalization(64 * MIB, 64 * MIB, 32 * MIB, "bfloat16"),
    "log softmax 512 MiB": Softmax(512 * MIB, 512 * MIB, 128 * MIB, "float32"),
    "adam 1 GiB": Optimizer(1024 * MIB, 768 * MIB, 64 * MIB, "float32", fused_tensors=64),
    "embedding 64 MiB": Index(64 * MIB, 64 * MIB, 32 * MIB, "bfloat16", operator="aten::embedding"),
    "sort 1 M": Sort(8 * MIB, 8 * MIB, MIB, "float32"),
    "random 64 MiB": Random(0, 64 * MIB, 32 * MIB, "bfloat16"),
    "fused 64 MiB": Fused("triton_poi_fused_add_mul", 128 * MIB, 64 * MIB, 32 * MIB, "bfloat16"),
    "copy h2d pinned 64 MiB": Copy("h2d", 64 * MIB, True),
    "copy h2d pageable 64 MiB": Copy("h2d", 64 * MIB),
    "copy d2d 64 MiB": Copy("d2d", 64 * MIB),
    "memset 64 MiB": Copy("memset", 64 * MIB),
    "unknown kernel": Kernel("mystery", (1024, 1, 1), (256, 1, 1)),
    "all_reduce 1 GiB in a node": collective("all_reduce", 1024 * MIB, 1),
    "all_reduce 8 B in a node": collective("all_reduce", 8, 1),
    "all_reduce 1 GiB on 16 nodes": collective("all_reduce", 1024 * MIB),
    "all_gather 416 MiB on 16 nodes": collective("all_gather", 416 * MIB),
    "all_gather 416 MiB, one rank a node": collective("all_gather", 416 * MIB, 2),
    "reduce_scatter 832 MiB on 16 nodes": collective("reduce_scatter", 832 * MIB),
    "all_to_all 64 MiB in a node": collective("all_to_all", 64 * MIB, 1),
    "send 64 MiB to the next node": collective("send", 64 * MIB, 2),
    "all_gather of one rank": collective("all_gather", 64 * MIB, 3),
}


def prices(gpu: str) -> dict[str, dict[str, object]]:
    """The table for one GPU: duration, doubt, what limits and who says so."""
    build = TraceBuilder(Manifest(world_size=128, rank=0, gpu=gpu, gpus_per_node=8, script="", groups=GROUPS))
    for work in WORK.values():
        build.work(work)
    priced = price_trace(build.trace(), hardware.choose_cluster(gpu=gpu, nodes=16))
    return {
        name: {"us": price.duration_ns / 1000, "±": price.uncertainty, "bound": price.bound, "by": price.estimator}
        for name, price in zip(WORK, priced.prices)
    }


def text(gpu: str) -> str:
    """The file's content: one line per entry, so that differences read as a table."""
    rounded = {name: {**entry, "±": round(float(str(entry["±"])), 3)} for name, entry in prices(gpu).items()}
    lines = [f"  {json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in rounded.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("gpu", GPUS)
def test_prices_are_those_kept(gpu: str) -> None:
    """Durations may differ by one part in a thousand: vector units of other machines round differently.

    A learned price by 3 %: rounding may take a row past the threshold of a tree.
    """
    kept = json.loads((FOLDER / f"prices-{gpu}.json").read_text())
    now = json.loads(text(gpu))
    assert {name: {**entry, "us": 0} for name, entry in now.items()} == {
        name: {**entry, "us": 0} for name, entry in kept.items()
    }
    for name, entry in now.items():
        tolerance = 0.03 if entry["by"].startswith("learned") else 1e-3
        assert entry["us"] == pytest.approx(kept[name]["us"], rel=tolerance), name


if __name__ == "__main__":
    for each in GPUS:
        (FOLDER / f"prices-{each}.json").write_text(text(each))
