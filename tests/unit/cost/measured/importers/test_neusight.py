"""NeuSight's tables: operators in fp32, whose time holds that of their launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.cost.measured.importers import neusight
from presim.cost.measured.importers.find import reader_of
from presim.cost.measured.measured_rows import Intake
from presim.trace.signatures import Elementwise, Gemm, Normalization, Softmax
from support.files import write_lines

L4, H100 = "NVIDIA L4", "NVIDIA H100 80GB HBM3"


def test_operators_are_read_and_the_launch_is_taken_off(tmp_path: Path) -> None:
    data = tmp_path / "data/dataset"
    (data / "test").mkdir(parents=True)
    write_lines(data / "train/linear.csv", "Device,B,M,N,K,Latency", f"{L4},1,512,1024,256,0.11")
    write_lines(data / "train/bmm.csv", "Device,B,M,N,K,Latency", f"{L4},8,512,64,256,0.11", f"{L4},8,512,64,,0.11")
    write_lines(
        data / "train/elem.csv", "Device,OPName,B,H,Latency",
        f"{H100},addu,1024,512,0.115", f"{H100},gelu,1024,512,0.115", f"{H100},pow,1024,512,0.115",
        f"{H100},add,1024,512,0.029", "Intel Gaudi 3,add,1024,512,0.115",
    )  # fmt: skip
    write_lines(data / "train/ln.csv", "Device,B,H,Latency", "NVIDIA A100 80GB PCIe,1024,512,0.145")
    write_lines(data / "train/softmax.csv", "Device,B,H,Latency", "NVIDIA A100 80GB PCIe,1024,512,0.118")
    assert reader_of(tmp_path) == ("neusight", neusight)
    intake = Intake().take(neusight.read(tmp_path))
    elements = 1024 * 512
    assert {row.signature: row.duration_ns for row in intake.accepted} == {
        Gemm(512, 1024, 256, 1, "float32", layout="NT"): pytest.approx(100e3),
        Gemm(512, 64, 256, 8, "float32", layout="NN"): pytest.approx(100e3),
        Elementwise(4 * elements, 4 * elements, elements, "float32", operator="aten::add"): pytest.approx(100e3),
        Elementwise(4 * elements, 4 * elements, elements, "float32", operator="aten::gelu"): pytest.approx(100e3),
        Normalization(4 * elements, 4 * elements, elements, "float32", operator="aten::native_layer_norm", row=512): (
            pytest.approx(100e3)
        ),
        Softmax(4 * elements, 4 * elements, elements, "float32", row=512): pytest.approx(100e3),
    }
    assert intake.rejected == {
        "sizes or Latency missing": 2,
        "mostly the host's launch": 1,
        "a GPU that the catalogue does not have: Intel Gaudi 3": 1,
    }
