"""Folders that a user gives go before presim's own prices, and say when they are of no use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from presim import hardware
from presim.cost.chain import price_trace
from presim.cost.estimators import estimators
from presim.cost.learned.learned_estimator import PACKAGED
from presim.cost.measured import table
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.cost.price import Origin
from presim.errors import InputError
from presim.trace.builder import TraceBuilder
from presim.trace.signatures import Gemm

GEMM = Gemm(4096, 4096, 4096, 1, "bfloat16", layout="NT")


def folder_with(path: Path, *gpus: str, duration_ns: float = 3e5) -> Path:
    rows = [Measurement(gpu=gpu, signature=GEMM, duration_ns=duration_ns, source=PROFILE) for gpu in gpus]
    table.write(rows, path / f"mine{table.SUFFIX}", {})
    return path


def test_measured_prices_go_first(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.work(GEMM)
    cluster = hardware.choose_cluster(gpu="h100-sxm")
    priced = price_trace(build.trace(), cluster, prices=[folder_with(tmp_path, "h100-sxm")])
    assert (priced.prices[0].origin, priced.prices[0].duration_ns) == (Origin.MEASURED, 300_000)
    assert priced.not_modelled == ()


def test_changed_files_are_read_again(tmp_path: Path) -> None:
    """Tables and models, by a process that has read them before."""
    model = tmp_path / "gemm-half.h100-sxm.json"
    read = []
    for at, duration_ns in enumerate((3e5, 4e5), 1):
        file = folder_with(tmp_path, "h100-sxm", duration_ns=duration_ns) / f"mine{table.SUFFIX}"
        os.utime(file, (at, at))
        model.write_text((PACKAGED / f"gemm-half.{('h100-sxm', 'h200')[at - 1]}.json").read_text())
        measured, learned, _ = estimators(hardware.gpu("h100-sxm"), [tmp_path])
        read.append([estimator.price([GEMM])[0] for estimator in (measured, learned)])
    assert [row[0].duration_ns for row in read if row[0]] == [3e5, 4e5]
    assert read[0][1] != read[1][1]


def test_rows_of_another_gpu_and_bad_rows_are_said(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.work(GEMM)
    cluster = hardware.choose_cluster(gpu="h100-sxm")
    priced = price_trace(build.trace(), cluster, prices=[folder_with(tmp_path, "h200", "nobody")])
    assert priced.prices[0].origin is Origin.LEARNED
    assert priced.not_modelled == (
        "1 rows of measured prices were left out: a GPU that the catalogue does not have: nobody.",
        "No row of the measured prices is of h100-sxm; they are of h200.",
    )


def test_models_of_a_folder_replace_those_of_presim(tmp_path: Path) -> None:
    text = (PACKAGED / "gemm-half.h100-sxm.json").read_text()
    (tmp_path / "gemm-half.h100-sxm.json").write_text(text)
    made = estimators(hardware.gpu("h100-sxm"), [tmp_path])
    assert [each.name for each in made] == ["learned", "analytic"]
    assert made[0].paths["gemm-half"].parent == tmp_path
    assert made[0].paths["attention-forward"].parent == PACKAGED


def test_a_folder_without_prices_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    (tmp_path / "notes.h100-sxm.json").write_text("{}")
    with pytest.raises(InputError, match="holds no prices: neither tables"):
        estimators(hardware.gpu("h100-sxm"), [tmp_path])
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        estimators(hardware.gpu("h100-sxm"), [tmp_path])
