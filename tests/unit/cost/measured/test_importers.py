"""Readers of public datasets: a row is the work it was, and a row that says too little is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from presim.cost.measured import table
from presim.cost.measured.importers import aiconfigurator, infersim, layers, llmservingsim, mamf, simumax
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
        Attention("forward", 2, 32, 8, 1, 1024, 128, 128, True, "bfloat16", "flash3"),
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


def written(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def test_infersims_products_experts_and_attention(tmp_path: Path) -> None:
    data = tmp_path / "bench_data"
    written(data / "gemm/h800/data.csv", "m,k,n,latency_us,mfu", "16,7168,1536,16.4,0.01", "16,7168,,16.4,0.01")
    columns = "num_local_experts,hidden_size,intermediate_size,tokens_per_expert,up_proj_us,down_proj_us"
    written(data / "grouped_gemm/prefill/h20/data.csv", columns, "8,2048,768,100,90.5,50.5")
    written(data / "mha/prefill/h20/64-8-128.csv", "dtype,seq_len,latency_us", "bf16,4096,2153")
    written(data / "mha/decode/h800/32-8-128.csv", "dtype,kv_dtype,batch_size,kv_len,latency_us",
            "bf16,bf16,512,8192,5439", "bf16,fp8,512,8192,3000")  # fmt: skip
    written(data / "mla/decode/h20/128-512-64.csv", "dtype,kv_dtype,batch_size,kv_len,latency_us", "bf16,bf16,1,1,9")
    assert reader_of(tmp_path) == ("infersim", infersim)
    intake = Intake().take(infersim.read(tmp_path))
    assert {(row.gpu, row.signature): row.duration_ns for row in intake.accepted} == {
        ("h800", Gemm(16, 1536, 7168, 1, "float8_e4m3fn", out_dtype="bfloat16", layout="NT", scaling="block")): 16_400,
        ("h20", GroupedGemm(8, 800, 1536, 2048, "float8_e4m3fn", "bfloat16")): 90_500,
        ("h20", GroupedGemm(8, 800, 2048, 768, "float8_e4m3fn", "bfloat16")): 50_500,
        ("h20", Attention("forward", 1, 64, 8, 4096, 4096, 128, 128, True, "bfloat16", "flash3")): 2_153_000,
        ("h800", Attention("forward", 512, 32, 8, 1, 8192, 128, 128, True, "bfloat16", "flash3")): 5_439_000,
    }
    assert intake.rejected == {
        "m, n or k missing": 1,
        "attention in another type than bf16": 1,
        "kernels that no signature describes: mla": 1,
    }


def test_llmservingsims_prompts_split_over_gpus_and_no_decoding(tmp_path: Path) -> None:
    columns = (
        "time_stats.attn_prefill.median,n_embd,n_q_head,n_kv_head,num_tensor_parallel_workers,batch_size,"
        "prefill_chunk_size,kv_cache_size,is_prefill,attention_backend"
    )
    row = "0.03,8192,64,8,4,1,1024,512,True,FLASH_ATTENTION"
    table_of = tmp_path / "H100/meta/Llama/tp4/attention.csv"
    written(table_of, columns, row, row.replace("True", "False"), row.replace("1024", ""))
    assert reader_of(tmp_path) == ("llmservingsim", llmservingsim)
    intake = Intake().take(llmservingsim.read(tmp_path))
    (found,) = intake.accepted
    assert found.signature == Attention("forward", 1, 16, 2, 1024, 1536, 128, 128, True, "bfloat16", "flash3")
    assert (found.gpu, found.duration_ns) == ("h100-sxm", 30_000)
    assert sorted(intake.rejected.values()) == [1, 1]


def test_the_best_products_are_a_table_of_rates(tmp_path: Path) -> None:
    path = tmp_path / "mamf.csv"
    written(path, "accelerator,dtype,mamf_tflops,best_shape_MxNxK", "NVIDIA GB200 SXM,bf16,1822.0,4096x9728x2048",
            "NVIDIA H100 SXM,fp8,1402.6,1024x9216x14336", "Intel Gaudi 3,bf16,1243,16384x4096x768",
            "NVIDIA B200 SXM,bf16,9999,1792x16128x3072", "NVIDIA B200 SXM,bf16,1745,large")  # fmt: skip
    assert reader_of(path) == ("mamf", mamf)
    intake = Intake().take(mamf.read(path))
    assert [(row.gpu, round(row.signature.flops / row.duration_ns / 1e3, 1)) for row in intake.accepted] == [
        ("gb200", 1822.0),
        ("h100-sxm", 1402.6),
    ]
    assert intake.rejected == {
        "a GPU that the catalogue does not have: Intel Gaudi 3": 1,
        "faster than the datasheet's peak allows": 1,
        "mamf_tflops is no positive number, or best_shape_MxNxK no shape": 1,
    }
