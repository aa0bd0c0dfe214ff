"""presim fit: the same measurements give the same files, which know what they were made of and how well they hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.fitting.fit_prices import fit
from presim.cost.learned.learned_estimator import LearnedEstimator
from presim.cost.learned.learned_model_file import read
from presim.cost.measured import table
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.errors import InputError
from presim.trace.signatures import Elementwise, Gemm

pytest.importorskip("lightgbm")
DEVICE = "Tesla V100-PCIE-32GB"
SLOWER = 1.3  # the imaginary card's kernels against the formula


def neusight(root: Path, rows: int, extra: str = "") -> Path:
    """A folder as NeuSight has it, with adds that take 1.3 times what the formula says."""
    for split in ("train", "test"):
        (root / "data/dataset" / split).mkdir(parents=True)
    estimator = AnalyticEstimator(hardware.gpu("v100-32gb-sxm"), burst=True)
    lines = ["OPName,Latency,Device,B,H"]
    for number in range(rows):
        sides = 4096 + 64 * number, 1024
        elements = sides[0] * sides[1]
        (price,) = estimator.price([Elementwise(8 * elements, 4 * elements, elements, "float32", operator="aten::add")])
        assert price is not None
        lines.append(f"add,{SLOWER * price.duration_ns * 1e-6 + 0.015},{DEVICE},{sides[0]},{sides[1]}")
    (root / "data/dataset/train/elem.csv").write_text("\n".join(lines) + "\n" + extra)
    return root


def test_a_fit_finds_what_the_measurements_say(tmp_path: Path) -> None:
    outcome = fit([neusight(tmp_path / "data", 300)], tmp_path / "out", 0)
    (model,) = outcome.models
    assert (model.kind, model.gpu, model.sources[0].rows) == ("elementwise", "v100-32gb-sxm", 300)
    whole = model.held_out[0]
    assert whole.mape < 0.01
    assert whole.analytic_mape == pytest.approx(1 - 1 / SLOWER, abs=0.01)
    work = Elementwise(8 << 24, 4 << 24, 1 << 24, "float32", operator="aten::add")
    gpu = hardware.gpu("v100-32gb-sxm")
    (price,), (formula,) = (
        each.price([work]) for each in (LearnedEstimator(gpu, (tmp_path / "out",)), AnalyticEstimator(gpu))
    )
    assert price is not None
    assert formula is not None
    assert price.duration_ns == pytest.approx(SLOWER * formula.duration_ns, rel=0.02)


@pytest.mark.parametrize(("source", "burst"), [(PROFILE, False), ("someone", True)])
def test_times_of_a_gpu_at_work_are_no_times_of_one_that_rests(tmp_path: Path, source: str, burst: bool) -> None:
    """Each source's card takes 1.2 times the formula of its regime, so that a step's products take that, too."""
    gpu = hardware.gpu("h100-sxm")
    work = [Gemm(256 * m, 512 * n, 4096, 1, "bfloat16", layout="NT") for m in range(1, 25) for n in range(1, 25)]
    resting, working = (AnalyticEstimator(gpu, burst=burst).price(work) for burst in (burst, False))
    rows = [
        Measurement(gpu=gpu.id, signature=each, duration_ns=1.2 * price.duration_ns, source=source)
        for each, price in zip(work, resting)
        if price
    ]
    (tmp_path / "data").mkdir()
    table.write(rows, tmp_path / "data/h100-sxm.measured.parquet", {})
    fit([tmp_path / "data"], tmp_path / "out", 0)
    found = LearnedEstimator(gpu, (tmp_path / "out",)).price(work)
    ratios = [mine.duration_ns / formula.duration_ns for mine, formula in zip(found, working) if mine and formula]
    assert np.median(ratios) == pytest.approx(1.2, rel=0.03)


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    data = neusight(tmp_path / "data", 300)
    for name in ("one", "two"):
        fit([data], tmp_path / name, 200)
    (one,), (two,) = (list((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert read(one).sources[0].rows == 200


def test_rows_that_cannot_be_true_are_counted_by_reason(tmp_path: Path) -> None:
    bad = [
        f"add,0.0301,{DEVICE},65536,65536",  # faster than memory
        f"add,,{DEVICE},64,64",
        f"add,nan,{DEVICE},64,64",
        f"add,1e9,{DEVICE},64,64",
        "add,1.0,Some Other Card,64,64",
        f"add,0.02,{DEVICE},64,64",
    ]
    outcome = fit([neusight(tmp_path / "data", 40, "\n".join(bad) + "\n")], tmp_path / "out", 0)
    assert outcome.sources[0].rows == 40
    assert outcome.sources[0].rejected == {
        "a GPU that the catalogue does not have: Some Other Card": 1,
        "a duration outside 0.2 us to 10 min: another unit?": 1,
        "a duration that is not a positive number": 1,
        "faster than the datasheet's peak allows": 1,
        "mostly the host's launch": 1,
        "sizes or Latency missing": 1,
    }
    written = json.loads(next((tmp_path / "out").iterdir()).read_text())
    assert np.sum(list(written["sources"][0]["rejected"].values())) == 6


def test_too_little_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    data = neusight(tmp_path / "data", 5)
    with pytest.raises(InputError, match="too little to fit: elementwise on v100-32gb-sxm: 5 rows, at least 20"):
        fit([data], tmp_path / "out", 0)
    assert not (tmp_path / "out").exists()


def test_where_all_is_left_out_the_refusal_says_how_many_and_why(tmp_path: Path) -> None:
    data = neusight(tmp_path / "data", 0, f"add,,{DEVICE},64,64\nadd,nan,{DEVICE},64,64\nadd,nan,{DEVICE},64,64\n")
    with pytest.raises(InputError) as refusal:
        fit([data], tmp_path / "out", 0)
    assert str(refusal.value) == (
        "too little to fit: no row of a class that can be corrected; "
        "of 3 rows left out: 2: a duration that is not a positive number, 1: sizes or Latency missing"
    )


def test_a_folder_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is none of the datasets presim reads: aiconfigurator, NeuSight, vidur"):
        fit([tmp_path], tmp_path / "out", 0)
    with pytest.raises(InputError, match="there is no folder"):
        fit([tmp_path / "absent"], tmp_path / "out", 0)
