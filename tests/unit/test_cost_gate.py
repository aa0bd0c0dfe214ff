"""The gate on CPU time has a row for each README command, and refuses what grew beyond its limit."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from presim.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("cost_gate")
    for name in ("cost_gate", "ran"):
        sys.modules.pop(name, None)


def test_every_verb_of_the_readme_is_measured_or_a_server(gate: ModuleType) -> None:
    verbs = set(re.findall(r"^\$ presim (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert verbs == {*gate.readme_commands(), *gate.SERVERS}
    assert gate.readme_commands()["compare"] == ["compare", "job", "--with", "--gpu b200"]


def test_a_fifth_more_is_allowed_and_no_more(gate: ModuleType) -> None:
    recorded = {"compose": 2.0, "serve": 4.0}
    assert gate.grown({"compose": 2.4, "serve": 3.0}, recorded) == []
    assert gate.grown({"compose": 2.41, "serve": 4.9}, recorded) == ["compose", "serve"]


def test_a_verb_without_a_record_is_named(gate: ModuleType) -> None:
    with pytest.raises(InputError, match=r"^no time is recorded for rl: record it with --write, on an idle machine$"):
        gate.grown({"rl": 1.0}, {})


def test_a_calibration_loop_takes_time(gate: ModuleType) -> None:
    assert gate.calibration_s() > 0.05


@pytest.mark.parametrize(
    ("cpu_s", "ratio", "runs"), [([2.0], 2.0, 1), ([5.0, 2.4], 2.4, 2), ([5.0, 3.0, 4.0, 5.0, 6.0, 7.0], 3.0, 6)]
)
def test_the_first_run_within_the_limit_is_the_last(
    gate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu_s: list[float], ratio: float, runs: int
) -> None:
    """What grew is run six times, of which the least is compared."""
    left = [gate.Ran(wall_s=0.0, cpu_s=one, peak_bytes=0, printed="") for one in cpu_s]
    monkeypatch.setattr(gate, "calibration_s", lambda: 1.0)
    monkeypatch.setattr(gate, "quiet", lambda words, folder: left.pop(0))
    measured = gate.measured({"compose": []}, ["compose"], {"compose": 2.0}, tmp_path, judges=True)
    assert measured == {"compose": ratio}
    assert len(cpu_s) - len(left) == runs


def test_times_of_another_processor_are_not_compared(
    gate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gate, "RECORD", tmp_path / "record.json")
    (tmp_path / "record.json").write_text('{"processor": "another", "ratios": {"simulate": 0.001}}')
    monkeypatch.setattr(sys, "argv", ["cost_gate.py", "--only", "simulate"])
    gate.main()
    assert capsys.readouterr().out.startswith("not compared: times are recorded for another, and this is ")
