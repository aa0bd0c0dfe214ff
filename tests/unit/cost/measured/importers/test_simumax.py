"""SimuMax's system files: shares of a peak become durations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.cost.measured.importers import simumax
from presim.cost.measured.measured_rows import Measurement
from presim.errors import InputError
from presim.trace.signatures import Attention, Gemm, GroupedGemm


def test_simumaxs_shares_of_peak_are_durations(tmp_path: Path) -> None:
    def operator(**entries: float) -> dict[str, Any]:
        return {"tflops": 1000.0, "accurate_efficient_factor": entries}

    gradient = "b=1, m=4096, k=512, n=1024, layout=NT, accumulate=True, out_dtype=fp32"
    heads = "batch=1, seq_len=2048, head_num=8, kv_head_num=4, qk_head_dim=64, v_head_dim=64, qkv_contiguous=True"
    grouped = "ng=4, M=128, N=256, K=512, dtype=bf16, out_dtype=bf16, stage=fwd, grad=False"
    operators = {
        "matmul": operator(**{gradient: 0.5, "b=1, m=2": 0.5, gradient.replace("4096", "8192"): 0.0}),
        "sdp_fwd": operator(), "sdp_bwd": operator(**{heads: 0.5}), "group_matmul": operator(**{grouped: 0.5}),
    }  # fmt: skip
    path = tmp_path / "configs/system/b200_bf16_ceperm.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"accelerator": {"op": operators}}))
    rows = list(simumax.read(tmp_path))
    made = {row.signature: row.duration_ns for row in rows if isinstance(row, Measurement)}
    product = Gemm(4096, 1024, 512, 1, "bfloat16", out_dtype="float32", layout="TN", accumulate=True)
    backward = Attention("backward", 1, 8, 4, 2048, 2048, 64, 64, True, "bfloat16", "cudnn")
    assert made == {
        product: pytest.approx(product.flops / 5e14 * 1e9),
        backward: pytest.approx(2.5 * 2 * 8 * 2048**2 * 128 / 5e14 * 1e9),
        GroupedGemm(4, 512, 256, 512, "bfloat16"): pytest.approx(2 * 4 * 128 * 256 * 512 / 5e14 * 1e9),
    }
    assert [row for row in rows if isinstance(row, str)] == [
        "a key of another form: b=1, m=2", "a share of peak that is not positive",
    ]  # fmt: skip
    path.write_text("{}")
    with pytest.raises(InputError, match="is not a system file of SimuMax"):
        list(simumax.read(tmp_path))
