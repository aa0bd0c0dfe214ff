"""aiconfigurator's tables: a row is the work it was, and one of another kind is left out."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from presim.cost.fitting.fit_prices import gather
from presim.cost.measured.importers import aiconfigurator, find
from presim.cost.measured.importers.find import reader_of
from presim.cost.measured.measured_rows import Measurement
from presim.errors import InputError
from presim.trace.signatures import Attention, Elementwise, Gemm


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
    assert attention.other_work == (Elementwise(8192, 8192, 4096, "bfloat16"),)


def test_an_import_has_more_gpus_and_counts_what_is_not_read(tmp_path: Path) -> None:
    product = {"gemm_dtype": "bfloat16", "m": 512, "n": 4096, "k": 1024, "latency": 0.02}
    for gpu in ("h100_sxm", "gb300"):
        path = tmp_path / f"systems/data/{gpu}/gemm/sglang/0.5/gemm_perf.parquet"
        parquet(path, product, {**product, "gemm_dtype": "nvfp4"})
    parquet(tmp_path / "systems/data/gb300/moe/sglang/0.5/moe_perf.parquet", product)
    rows = list(aiconfigurator.read_all(tmp_path))
    assert sorted(row.gpu for row in rows if isinstance(row, Measurement)) == ["gb300", "h100-sxm"]
    assert sorted(row for row in rows if isinstance(row, str)) == [
        "a table that is not read: moe_perf", *["a type, kernel or cache that is not read"] * 2
    ]  # fmt: skip
    assert {row.gpu for row in aiconfigurator.read(tmp_path) if isinstance(row, Measurement)} == {"h100-sxm"}


def test_the_installed_package_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(InputError, match="nor is aiconfigurator-core installed: pip install --no-deps"):
        find.located(Path("aiconfigurator"))
    package = tmp_path / "site/aiconfigurator_core"
    parquet(package / "systems/data/h100_sxm/gemm/sglang/0.5/gemm_perf.parquet", {"latency": 0.02})
    (package / "__init__.py").touch()
    (tmp_path / "site/aiconfigurator_core-0.12.0.dist-info").mkdir()
    importlib.invalidate_caches()
    assert find.located(Path("aiconfigurator")) == package
    assert find.commit(package) == "0.12.0"
    (read,) = gather([Path("aiconfigurator")], 0, lambda text: None)[1]
    assert read.commit == "0.12.0"


@pytest.mark.parametrize(("framework", "paged"), [("vllm", True), ("sglang", False)])
def test_aiconfigurators_vllm_attends_over_pages(tmp_path: Path, framework: str, paged: bool) -> None:
    row = {
        "kernel_source": "fa3", "batch_size": 2, "isl": 512, "num_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "step": 0, "window_size": 0, "latency": 0.03,
    }  # fmt: skip
    encoder = {name: value for name, value in row.items() if name != "num_key_value_heads"}
    folder = tmp_path / "data/h100_sxm"
    parquet(folder / f"attention/{framework}/0.5/context_attention_perf.parquet", row)
    parquet(folder / f"encoder_attention/{framework}/0.5/encoder_attention_perf.parquet", encoder)
    found = [each.signature for each in aiconfigurator.read(tmp_path) if isinstance(each, Measurement)]
    assert {(each.causal, each.paged) for each in found if isinstance(each, Attention)} == {
        (True, paged),
        (False, False),
    }
