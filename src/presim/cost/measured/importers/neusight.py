"""Tables of NeuSight (MIT): single operators in fp32 without TF32; latency in ms, including the launch's host time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from presim.cost.measured.importers.import_tables import Row, csv_rows, number, positive_integers, sample
from presim.cost.measured.measured_rows import Measurement
from presim.trace.signatures import Elementwise, Gemm, Normalization, Signature, Softmax

# Device name -> catalogue id, and host time of a launch (ns) included in this dataset's event timing.
_GPUS = {
    "NVIDIA H100 80GB HBM3": ("h100-sxm", 15e3),
    "NVIDIA A100 80GB PCIe": ("a100-80gb-pcie", 18e3),
    "NVIDIA A100-PCIE-40GB": ("a100-40gb-pcie", 18e3),
    "NVIDIA L4": ("l4", 10e3),
    "Tesla V100-PCIE-32GB": ("v100-32gb-sxm", 15e3),
    "Tesla T4": ("t4", 15e3),
}
# Layer normalisation takes the host longer. A line through the dataset's A100 rows starts at 53 us; for elementwise
# kernels it starts at 17. vidur's kernel times of the same operator on A100 start at 5 to 7.
_NORMALIZATION_HOST_NS = {"a100-80gb-pcie": 45e3, "a100-40gb-pcie": 45e3}
_READS = {"add": 2, "mul": 2, "div": 2}
_WITH_NUMBER = {"addu": "add", "mulu": "mul", "divu": "div"}  # operand: a tensor and a number
_LEAST = 2.0  # rows below twice the launch's host time are rejected


def recognises(root: Path) -> bool:
    """Whether a folder is a checkout of this dataset."""
    return (root / "data/dataset/train").is_dir() and (root / "data/dataset/test").is_dir()


def files(root: Path) -> list[Path]:
    """The tables that are read."""
    return sorted((root / "data/dataset").glob("*/*.csv"))


def read(root: Path, limit: int = 0) -> Iterator[Measurement | str]:
    """At most ``limit`` rows of each table; 0: all."""
    for path in files(root):
        for row in sample(list(csv_rows(path)), limit, "/".join(path.parts[-2:])):
            yield _row(path.stem, row)


def _row(name: str, row: Row) -> Measurement | str:
    gpu, host_ns = _GPUS.get(row.get("Device", ""), ("", 0.0))
    host_ns = _NORMALIZATION_HOST_NS.get(gpu, host_ns) if name == "ln" else host_ns
    latency = number(row, "Latency")
    work = _work(name, row)
    if not gpu:
        return f"a GPU that the catalogue does not have: {row.get('Device')}"
    if latency is None or work is None:
        return "sizes or Latency missing"
    if latency * 1e6 < _LEAST * host_ns:
        return "mostly the host's launch"
    return Measurement(gpu=gpu, signature=work, duration_ns=latency * 1e6 - host_ns, source="neusight")


def _work(name: str, row: Row) -> Signature | None:
    if name in ("linear", "bmm"):
        sizes = positive_integers(row, "M", "N", "K", "B")
        layout = "NT" if name == "linear" else "NN"
        m, n, k, batch = sizes or (0, 0, 0, 0)
        return Gemm(m, n, k, batch, "float32", layout=layout) if sizes else None
    sizes = positive_integers(row, "B", "H")
    operator = row.get("OPName", "")
    if not sizes or operator in ("pow", "powu"):
        return None
    elements = sizes[0] * sizes[1]
    traffic = (4 * _READS.get(operator, 1) * elements, 4 * elements, elements, "float32")
    if name == "elem":
        return Elementwise(*traffic, operator=f"aten::{_WITH_NUMBER.get(operator, operator)}")
    if name == "ln":
        return Normalization(*traffic, operator="aten::native_layer_norm", row=sizes[1])
    return Softmax(*traffic, row=sizes[1])
