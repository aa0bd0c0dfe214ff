"""The verb `profile`: imports where there is no GPU, and refuses to measure there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from presim.cli import main
from presim.cost.measured import table
from presim.trace.signatures import Gemm


def trace(path: Path, rows: int = 512) -> Path:
    """A profiler's trace of one product on a B200."""
    args = {"External id": 1, "Input Dims": [[rows, 512], [512, 512]], "Input type": ["c10::Half"] * 2}
    product = {"cat": "cpu_op", "name": "aten::mm", "args": {**args, "Input Strides": [[512, 1]] * 2}}
    kernel = {"cat": "kernel", "dur": 8.0, "args": {"External id": 1}}
    whole = {"deviceProperties": [{"name": "NVIDIA B200"}], "traceEvents": [product, kernel]}
    path.write_bytes(gzip.compress(json.dumps(whole).encode()))
    return path


def test_a_profilers_trace_becomes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = trace(tmp_path / "run.json.gz")
    assert main.run(["profile", "--import", str(data), "--out", str(tmp_path / "out")]) == 0
    (path,) = table.find(tmp_path / "out")
    assert capsys.readouterr().out == f"{path}: 1 rows\n"
    assert [row.duration_ns for row in table.read([path]).rows] == [8000.0]


def test_a_second_import_leaves_what_the_first_brought(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own rows of the same work take the place of older ones."""
    first, again = trace(tmp_path / "a.json.gz"), trace(tmp_path / "b.json.gz", rows=1024)
    for data in (first, again, again):
        assert main.run(["profile", "--import", str(data), "--out", str(tmp_path / "out")]) == 0
    (path,) = table.find(tmp_path / "out")
    assert capsys.readouterr().out.splitlines()[1:] == [f"{path}: 1 rows and 1 that it had"] * 2
    assert sorted(row.signature.m for row in table.read([path]).rows if isinstance(row.signature, Gemm)) == [512, 1024]
    assert sorted(table.origin_of(path)) == ["a.json.gz", "b.json.gz"]


def test_what_cannot_be_imported_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    assert main.run(["profile", "--import", str(tmp_path / "data"), "--out", str(tmp_path / "out")]) == 2
    assert "is none of the datasets presim reads" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_a_gpu_nothing_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main.run(["profile", "--out", str(tmp_path / "out"), "--seconds", "1"]) == 2
    assert "there is no GPU here that PyTorch can use" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
