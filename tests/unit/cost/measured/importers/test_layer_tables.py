"""vidur's and Frontier's tables: a layer's parts become products and elementwise work."""

from __future__ import annotations

from pathlib import Path

from presim.cost.measured.importers import layer_tables
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Elementwise, Gemm


def test_vidurs_layers_are_products_and_elementwise_work(tmp_path: Path) -> None:
    row = {
        "num_tokens": 512, "n_embd": 4096, "n_expanded_embd": 16384, "num_tensor_parallel_workers": 2,
        "use_gated_mlp": "False", "time_stats.add.median": 0.002, "time_stats.mlp_act.median": 0.02,
        "time_stats.mlp_up_proj.median": 0.2, "time_stats.mlp_down_proj.median": "",
    }  # fmt: skip
    path = tmp_path / "data/profiling/compute/a100/meta/model/mlp.csv"
    path.parent.mkdir(parents=True)
    path.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n" + "," * (len(row) - 1) + "\n")
    rows = list(layer_tables.read(tmp_path))
    inner = 512 * 8192
    assert [each.signature for each in rows if isinstance(each, Measurement)] == [
        Elementwise(2 * inner, 2 * inner, inner, "float16", operator="aten::gelu"),
        Gemm(512, 8192, 4096, 1, "float16", layout="NT"),
    ]
    assert [each.split(",")[0] for each in rows if isinstance(each, str)] == ["shorter than 5 us", "num_tokens"]
