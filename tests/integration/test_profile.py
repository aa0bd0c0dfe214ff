"""What `presim profile` runs for a signature is just that work, as a capture on the emulated GPU shows."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from presim import hardware
from presim.profile.plan import plan
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Elementwise,
    Gemm,
    Normalization,
    Signature,
    Softmax,
    Sort,
)
from support.captured import run
from support.command import presim

pytestmark = pytest.mark.torch_cuda

MIB = 1 << 20
WORK: list[Signature] = [
    *(Gemm(512, 1024, 256, 1, "bfloat16", layout=layout) for layout in ("NN", "NT", "TN", "TT")),
    Gemm(64, 96, 128, 8, "float16", layout="NT"),
    Gemm(512, 512, 512, 1, "float32"),
    Gemm(512, 512, 512, 1, "float32", compute="tf32"),
    Gemm(512, 1024, 256, 1, "bfloat16", layout="TN", accumulate=True),
    *(
        Attention(direction, 2, 16, kv_heads, 512, 512, 64, 64, True, "bfloat16", backend)
        for direction in ("forward", "backward")
        for backend, kv_heads in (("flash", 4), ("cudnn", 16), ("efficient", 16))
    ),
    Elementwise(2 * MIB, MIB, MIB // 2, "bfloat16", operator="aten::add"),
    Elementwise(MIB, MIB, MIB // 4, "float32", operator="aten::gelu"),
    *(Elementwise(2 * MIB, MIB, MIB // 4, "float32", operator=f"aten::{name}_backward") for name in ("gelu", "silu")),
    *(Elementwise(MIB, MIB, MIB // 2, "bfloat16", operator=f"aten::{name}") for name in ("rsqrt", "abs", "reciprocal")),
    Elementwise(0, MIB, MIB // 2, "bfloat16", operator="aten::fill_"),
    Elementwise(2 * MIB, MIB, MIB // 2, "bfloat16", operator="aten::copy_"),
    Elementwise(MIB, 2 * MIB, MIB // 2, "float32", operator="aten::copy_"),
    *(
        Normalization(
            size * MIB + 2 * size * 1024,
            size * MIB + 8 * 1024,
            MIB,
            dtype,
            operator="aten::native_layer_norm",
            row=1024,
        )
        for dtype, size in (("bfloat16", 2), ("float32", 4))
    ),
    *(
        Softmax(reads * 4 * MIB, 4 * MIB, MIB, "float32", operator=f"aten::{name}", row=1024)
        for name, reads in (("_softmax", 1), ("_log_softmax", 1), ("_log_softmax_backward_data", 2))
    ),
    *(
        Convolution(direction, 8, 64, 128, (56, 56), (3, 3), (28, 28), (2, 2), (1, 1), 1, "bfloat16", layout="nhwc")
        for direction in ("forward", "backward_data", "backward_weight")
    ),
    Copy("d2d", MIB),
    Copy("h2d", MIB, pinned=True),
    Copy("d2h", MIB, pinned=True),
]


def test_each_signature_is_run_as_it_says(tmp_path: Path) -> None:
    gpu = hardware.gpu("h100-sxm")
    assert set(plan(WORK, (), gpu).work) == set(WORK)
    (tmp_path / "work.json").write_bytes(msgspec.json.encode(WORK))
    captured = set(run("measured_kernels.py", str(tmp_path / "work.json"), steps=0).trace.signatures)
    assert [signature for signature in WORK if signature not in captured] == []


def test_the_measuring_process_times_what_it_can_and_says_what_it_cannot(tmp_path: Path) -> None:
    """Its whole loop, with the emulated device's clock for the card's: cold cache, medians, one line each."""
    work = [WORK[0], Attention("backward", 1, 8, 8, 512, 512, 64, 64, True, "bfloat16", "flash"), Sort(1, 1, 1, "int8")]
    (tmp_path / "work").write_bytes(msgspec.json.encode(work))
    bench = ("-m", "presim.profile.bench", tmp_path / "work", tmp_path / "results", "60")
    ended = presim("run", "--gpu", "h100-sxm", "--steps", "0", "--quiet", *bench)
    assert ended.returncode == 0, ended.stderr
    card, *lines = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    assert card["gpu"] == "NVIDIA H100 80GB HBM3"
    assert [sorted(line) for line in lines] == [["duration_ns", "samples", "signature", "spread"]] * 2 + [
        ["error", "signature"]
    ]
    assert all(1e3 < line["duration_ns"] < 1e5 and line["samples"] >= 7 for line in lines[:2])
