"""InferSim's tables: products, experts and attention, and what has no signature is counted."""

from __future__ import annotations

from pathlib import Path

from presim.cost.measured.importers import infersim
from presim.cost.measured.importers.find import reader_of
from presim.cost.measured.measured_rows import Intake
from presim.trace.signatures import Attention, Gemm, GroupedGemm
from support.files import write_lines


def test_infersims_products_experts_and_attention(tmp_path: Path) -> None:
    data = tmp_path / "bench_data"
    write_lines(data / "gemm/h800/data.csv", "m,k,n,latency_us,mfu", "16,7168,1536,16.4,0.01", "16,7168,,16.4,0.01")
    columns = "num_local_experts,hidden_size,intermediate_size,tokens_per_expert,up_proj_us,down_proj_us"
    write_lines(data / "grouped_gemm/prefill/h20/data.csv", columns, "8,2048,768,100,90.5,50.5")
    write_lines(data / "mha/prefill/h20/64-8-128.csv", "dtype,seq_len,latency_us", "bf16,4096,2153")
    decoded = ("bf16,bf16,512,8192,5439", "bf16,fp8,512,8192,3000")
    write_lines(data / "mha/decode/h800/32-8-128.csv", "dtype,kv_dtype,batch_size,kv_len,latency_us", *decoded)
    write_lines(
        data / "mla/decode/h20/128-512-64.csv", "dtype,kv_dtype,batch_size,kv_len,latency_us", "bf16,bf16,1,1,9"
    )
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
