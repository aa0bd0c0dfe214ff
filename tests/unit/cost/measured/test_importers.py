"""Readers of public datasets: a row is the work it was, and a row that says too little is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from presim.cost.measured import table
from presim.cost.measured.importers import aiconfigurator, layers, simumax
from presim.cost.measured.importers.find import commit, digest, import_tables, reader_of
from presim.cost.measured.importers.tables import sample
from presim.cost.measured.rows import Intake, Measurement
from presim.errors import InputError
from presim.trace.signatures import Attention, Elementwise, Gemm, GroupedGemm


def parquet(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def test_aiconfigurators_products_and_attention(tmp_path: Path) -> None:
    product = {"kernel_source": "torch", "gemm_dtype": "bfloat16", "m": 512, "n": 4096, "k": 1024, "latency": 0.02}
    parquet(
        tmp_path / "data/h100_sxm/gemm/sglang/0.5/gemm_perf.parquet",
        product, {**product, "gemm_dtype": "fp8"}, {**product, "gemm_dtype": "int4_wo"}, {**product, "m": None},
    )  # fmt: skip
    heads = {
        "kernel_source": "fa3", "batch_size": 2, "isl": 1, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "step": 1023, "window_size": 0, "latency": 0.03,
    }  # fmt: skip
    parquet(
        tmp_path / "data/h100_sxm/attention/sglang/0.5/generation_attention_perf.parquet",
        heads, {**heads, "kernel_source": "torch_flow"}, {**heads, "kv_cache_dtype": "fp8"},
    )  # fmt: skip
    assert reader_of(tmp_path)[0] == "aiconfigurator"
    rows = list(aiconfigurator.read(tmp_path))
    made = {row.signature: row for row in rows if isinstance(row, Measurement)}
    assert set(made) == {
        Gemm(512, 4096, 1024, 1, "bfloat16", layout="NT"),
        Gemm(512, 4096, 1024, 1, "float8_e4m3fn", out_dtype="bfloat16", layout="NT", scaling="outer"),
        Attention("forward", 2, 32, 8, 1, 1024, 128, 128, True, "bfloat16", "cudnn"),
    }
    assert made[Gemm(512, 4096, 1024, 1, "bfloat16", layout="NT")].duration_ns == pytest.approx(20_000)
    assert [row for row in rows if isinstance(row, str)] == ["m, n, k or latency missing"]
    attention = next(row for work, row in made.items() if isinstance(work, Attention))
    assert attention.beside == (Elementwise(8192, 8192, 4096, "bfloat16"),)


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
    with pytest.raises(InputError, match="is no system file of SimuMax"):
        list(simumax.read(tmp_path))


def test_vidurs_layers_are_products_and_elementwise_work(tmp_path: Path) -> None:
    row = {
        "num_tokens": 512, "n_embd": 4096, "n_expanded_embd": 16384, "num_tensor_parallel_workers": 2,
        "use_gated_mlp": "False", "time_stats.add.median": 0.002, "time_stats.mlp_act.median": 0.02,
        "time_stats.mlp_up_proj.median": 0.2, "time_stats.mlp_down_proj.median": "",
    }  # fmt: skip
    path = tmp_path / "data/profiling/compute/a100/meta/model/mlp.csv"
    path.parent.mkdir(parents=True)
    path.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n" + "," * (len(row) - 1) + "\n")
    rows = list(layers.read(tmp_path))
    inner = 512 * 8192
    assert [each.signature for each in rows if isinstance(each, Measurement)] == [
        Elementwise(2 * inner, 2 * inner, inner, "float16", operator="aten::gelu"),
        Gemm(512, 8192, 4096, 1, "float16", layout="NT"),
    ]
    assert [each.split(",")[0] for each in rows if isinstance(each, str)] == ["shorter than 5 us", "num_tokens"]


def test_a_folder_of_tables_is_a_dataset_too(tmp_path: Path) -> None:
    work = Gemm(4096, 4096, 4096, 1, "bfloat16")
    rows = [Measurement(gpu=gpu, signature=work, duration_ns=3e5, source="test") for gpu in ("h100-sxm", "nobody")]
    (tmp_path / "mine").mkdir()
    table.write(rows, tmp_path / "mine" / f"a{table.SUFFIX}", {})
    name, reader = reader_of(tmp_path / "mine")
    intake = Intake().take(reader.read(tmp_path / "mine"))
    assert (name, intake.accepted) == ("presim", rows[:1])
    assert intake.rejected == {"a GPU that the catalogue does not have: nobody": 1}
    said = import_tables([tmp_path / "mine"], tmp_path / "out")
    assert said[0] == f"{tmp_path}/out/h100-sxm.imported{table.SUFFIX}: 1 rows"


def test_a_dataset_is_known_by_its_commit_and_contents(tmp_path: Path) -> None:
    (tmp_path / "COMMIT").write_text("0123456789abcdef\n")
    (tmp_path / "a").write_text("one")
    before = digest(tmp_path, [tmp_path / "a"])
    (tmp_path / "a").write_text("two")
    assert (commit(tmp_path), digest(tmp_path, [tmp_path / "a"]) == before) == ("0123456789ab", False)


def test_a_sample_is_the_same_each_time_and_keeps_the_order() -> None:
    rows = list(range(1000))
    chosen = sample(rows, 100, "table")
    assert chosen == sample(rows, 100, "table") == sorted(set(chosen))
    assert (len(chosen), sample(rows, 0, "table"), sample(rows, 2000, "table")) == (100, rows, rows)
    assert chosen != sample(rows, 100, "another")
