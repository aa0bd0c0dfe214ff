"""A sample of published runs, from their recipes to predictions: accuracy that was reached is kept."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest

from support.captured import ROOT
from support.command import presim

pytestmark = [pytest.mark.torch_cuda]

SAMPLE = ROOT / "validation" / "sample.csv"
WORST_STEP_TIME = 0.06  # median; 0.041 when the sample was chosen
WORST_CASE = 0.2
WORST_MEMORY = 0.01  # median; 0.0014 then


def test_two_published_runs_are_predicted(tmp_path: Path) -> None:
    """The first and the last of the sample, of two frameworks, each within a fifth."""
    out, cases = tmp_path / "predicted.csv", tmp_path / "cases.csv"
    head, first, *_, last = SAMPLE.read_text().splitlines(keepends=True)
    cases.write_text(head + first + last)
    ended = presim("validate", cases, "--jobs", "2", "--out", out, "--captures", tmp_path / "captures")
    assert ended.returncode == 0, ended.stderr
    rows = list(csv.DictReader(out.open()))
    assert [row["reason"] for row in rows] == [""] * 2
    assert max(abs(float(row["error"])) for row in rows) < WORST_CASE


@pytest.mark.long
def test_a_sample_of_published_runs_is_predicted_as_well_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "predicted.csv"
    ended = presim("validate", SAMPLE, "--jobs", "2", "--out", out, "--captures", tmp_path / "captures")
    assert ended.returncode == 0, ended.stderr
    rows = list(csv.DictReader(out.open()))
    assert [row["reason"] for row in rows] == [""] * 6
    assert "Warning" not in ended.stderr  # of the recipes' frameworks
    times = [abs(float(row["error"])) for row in rows]
    memory = [abs(float(row["memory_error"])) for row in rows if row["memory_error"]]
    assert statistics.median(times) < WORST_STEP_TIME, times
    assert statistics.median(memory) < WORST_MEMORY, memory
    assert max(times) < WORST_CASE
    assert all(
        float(row["low_step_time_s"]) < float(row["step_time_s"]) < float(row["high_step_time_s"]) for row in rows
    )
