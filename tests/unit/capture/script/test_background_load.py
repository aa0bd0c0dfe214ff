"""The CPU share of other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.script import background_load
from presim.capture.script.background_load import BackgroundLoad


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two CPUs at 100 ticks a second, ten seconds between two samples, of which this process used four."""
    path = tmp_path / "stat"
    path.write_text("cpu  100 0 50 800 50 0 0 0 70 0\ncpu0 50 0 25 400 25 0 0 0 35 0\n")
    clock, spent = iter((0.0, 10.0)), iter((1.0, 5.0))
    monkeypatch.setattr(background_load, "_STATISTICS", path)
    monkeypatch.setattr(background_load.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(background_load.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(background_load.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(background_load.time, "process_time", lambda: next(spent))
    return path


def test_busy_time_that_is_not_ours_counts_as_others(machine: Path) -> None:
    seen = BackgroundLoad()
    machine.write_text("cpu  700 100 150 1700 150 30 10 10 90 0\n")
    assert seen.share() == pytest.approx((8.5 - 4) / 20, abs=0.01)  # guests' time is in user's already


def test_only_this_process_gives_zero(machine: Path) -> None:
    seen = BackgroundLoad()
    machine.write_text("cpu  400 0 140 1400 60 0 0 0 0 0\n")
    assert seen.share() == 0


def test_a_system_without_statistics_gives_zero(machine: Path) -> None:
    machine.unlink()
    assert BackgroundLoad().share() == 0
