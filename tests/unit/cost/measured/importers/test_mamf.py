"""MAMF's table: the best product found on each accelerator."""

from __future__ import annotations

from pathlib import Path

from presim.cost.measured.importers import mamf
from presim.cost.measured.importers.find import reader_of
from presim.cost.measured.measured_rows import Intake
from support.files import write_lines


def test_the_best_products_are_a_table_of_rates(tmp_path: Path) -> None:
    path = tmp_path / "mamf.csv"
    write_lines(path, "accelerator,dtype,mamf_tflops,best_shape_MxNxK", "NVIDIA GB200 SXM,bf16,1822.0,4096x9728x2048",
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
        "mamf_tflops is not a positive number, or best_shape_MxNxK is not a shape": 1,
    }
