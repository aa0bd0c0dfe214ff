"""Traces of PyTorch's profiler become rows: each operator's kernels added up, shapes as recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from presim.cost.measured.importers import kineto
from presim.cost.measured.measured_rows import Intake, Measurement
from presim.errors import InputError
from presim.trace.signatures import Attention, Elementwise, Gemm, Normalization, Softmax

BF16 = "c10::BFloat16"


def operator(number: int, name: str, shapes: list[list[int]], **more: Any) -> dict[str, Any]:
    args = {"External id": number, "Input Dims": shapes, "Input type": [BF16] * len(shapes), **more}
    return {"cat": "cpu_op", "name": name, "args": args}


def kernel(number: int, microseconds: float) -> dict[str, Any]:
    return {"cat": "kernel", "name": "k", "dur": microseconds, "args": {"External id": number}}


def saved(path: Path, *events: dict[str, Any], gpu: str = "NVIDIA H100 80GB HBM3") -> Path:
    trace = {"deviceProperties": [{"name": gpu}], "traceEvents": list(events)}
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


def test_products_attention_and_elementwise_are_read(tmp_path: Path) -> None:
    linear = {"Input Strides": [[1], [1024, 1], [1, 1024]]}
    flags = {"Concrete Inputs": ["", "", "", "", "", "512", "512", "0.", "True", "False"]}
    heads = [[4, 512, 16, 64], [4, 512, 8, 64], [4, 512, 8, 64]]
    path = saved(
        tmp_path / "a.json.gz",
        operator(1, "aten::addmm", [[512], [8192, 1024], [1024, 512]], **linear), kernel(1, 30.0), kernel(1, 2.0),
        operator(2, "aten::addmm", [[512], [8192, 1024], [1024, 512]], **linear), kernel(2, 34.0),
        operator(3, "aten::_flash_attention_forward", heads, **flags), kernel(3, 90.0),
        operator(4, "aten::add", [[8, 1024], [1024]]), kernel(4, 1.5),
        operator(5, "aten::mm", [[64, 4096], [4096, 128]], **{"Input Strides": [[1, 64], [128, 1]]}), kernel(5, 9.0),
    )  # fmt: skip
    rows = {row.signature: row for row in kineto.trace_rows(path) if not isinstance(row, str)}
    product = rows[Gemm(8192, 512, 1024, 1, "bfloat16", layout="NT", epilogue="bias")]
    assert (product.duration_ns, product.samples, product.gpu) == (33_000.0, 2, "h100-sxm")
    assert product.spread == pytest.approx(1 / 33)
    assert Attention("forward", 4, 16, 8, 512, 512, 64, 64, True, "bfloat16", "flash") in rows
    assert Elementwise(2 * 9216, 2 * 8192, 8192, "bfloat16", operator="aten::add") in rows
    assert Gemm(64, 128, 4096, 1, "bfloat16", layout="TN") in rows


def test_casts_norms_and_softmax_are_those_of_a_capture(tmp_path: Path) -> None:
    wide = {"Input type": ["float", BF16], "Input Strides": [[1024, 1]] * 2}
    across = {**wide, "Input Strides": [[1024, 1], [1, 8]]}
    last, first = ({"Concrete Inputs": ["", axis, "False"]} for axis in ("-1", "0"))
    norm = {"Input type": [BF16, "ScalarList", BF16, BF16, "Scalar"]}
    path = saved(
        tmp_path / "a.json.gz",
        operator(1, "aten::copy_", [[8, 1024], [8, 1024]], **wide), kernel(1, 3.0),
        operator(2, "aten::copy_", [[8, 1024], [8, 1024]], **across), kernel(2, 3.0),
        operator(3, "aten::native_layer_norm", [[8, 1024], [], [1024], [1024], []], **norm), kernel(3, 3.0),
        operator(4, "aten::_log_softmax", [[8, 1024], [], []], **last), kernel(4, 3.0),
        operator(5, "aten::_softmax", [[8, 1024], [], []], **first), kernel(5, 3.0),
    )  # fmt: skip
    rows = list(kineto.trace_rows(path))
    assert [row.signature for row in rows if not isinstance(row, str)] == [
        Elementwise(2 * 8192, 4 * 8192, 8192, "float32", operator="aten::copy_"),
        Normalization(2 * 8192 + 4096, 2 * 8192 + 64, 8192, "bfloat16", operator="aten::native_layer_norm", row=1024),
        Softmax(2 * 8192, 2 * 8192, 8192, "bfloat16", operator="aten::_log_softmax", row=1024),
    ]
    assert [row for row in rows if isinstance(row, str)] == [
        "arguments of aten::copy_ that are not read", "arguments of aten::_softmax that are not read"
    ]  # fmt: skip


def test_a_trace_of_no_card_says_so(tmp_path: Path) -> None:
    assert list(kineto.trace_rows(saved(tmp_path / "a.json.gz", gpu=""))) == ["a trace that does not name its GPU"]


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "a.json.gz",
        operator(1, "aten::frobnicate", [[2]]), kernel(1, 3.0),
        {"cat": "cpu_op", "name": "aten::mm", "args": {"External id": 2}}, kernel(2, 3.0),
        operator(3, "aten::mm", [[2]]), kernel(3, 3.0),
        operator(4, "aten::add", [[1 << 30]]), kernel(4, 3.0), kernel(99, 1.0),
    )  # fmt: skip
    assert Intake().take(kineto.trace_rows(path)).rejected == {
        "an operator that is not read: aten::frobnicate": 1,
        "an operator without recorded shapes": 1,
        "arguments of aten::mm that are not read": 1,
        "faster than the datasheet's peak allows": 1,
    }


def test_a_card_that_the_catalogue_lacks_is_counted(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.json.gz", gpu="Some Card")
    assert list(kineto.trace_rows(path)) == ["a GPU that the catalogue does not have: Some Card"]


def test_a_virtual_machines_part_of_a_card_is_that_card(tmp_path: Path) -> None:
    product = operator(1, "aten::mm", [[512, 4096], [4096, 4096]], **{"Input Strides": [[4096, 1], [4096, 1]]})
    path = saved(tmp_path / "a.json.gz", product, kernel(1, 500.0), gpu="AMD Instinct MI300X VF")
    assert [row.gpu for row in kineto.trace_rows(path) if isinstance(row, Measurement)] == ["mi300x"]


@pytest.mark.parametrize("text", ["no", "[]", '{"traceEvents": 3}'])
def test_files_that_are_no_traces_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError, match=r"bad\.json is not a trace of PyTorch's profiler"):
        list(kineto.trace_rows(tmp_path / "bad.json"))


@pytest.mark.parametrize("sizes", [[64, [1]], [64, []], [[], 64], [64, -1], [64, True]])
@pytest.mark.parametrize("name", ["aten::mm", "aten::add", "aten::copy_", "aten::_softmax"])
def test_sizes_that_are_no_numbers_are_counted(name: str, sizes: list[Any], tmp_path: Path) -> None:
    more = {"Input Strides": [[64, 1]] * 2, "Concrete Inputs": ["", "-1", "False"]}
    path = saved(tmp_path / "a.json.gz", operator(1, name, [sizes, sizes], **more), kernel(1, 9.0))
    assert all(isinstance(row, str) for row in kineto.trace_rows(path))
