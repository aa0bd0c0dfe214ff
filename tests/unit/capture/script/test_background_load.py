"""What other processes used of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.script import background_load
from presim.capture.script.background_load import BackgroundLoad


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two CPUs at 100 ticks a second, ten seconds between two looks, of which this process used four."""
    path = tmp_path / "stat"
    path.write_text("cpu  100 0 50 800 50 0 0 0 70 0\ncpu0 50 0 25 400 25 0 0 0 35 0\n")
    clock, spent = iter((0.0, 10.0)), iter((1.0, 5.0))
    monkeypatch.setattr(background_load, "_STATISTICS", path)
    monkeypatch.setattr(background_load.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(background_load.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(background_load.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(background_load.time, "process_time", lambda: next(spent))
    return path


def test_what_neither_idled_nor_was_ours_is_others(machine: Path) -> None:
    seen = BackgroundLoad()
    machine.write_text("cpu  700 100 150 1700 150 30 10 10 90 0\n")
    assert seen.share() == pytest.approx((8.5 - 4) / 20, abs=0.01)  # guests' time is in user's already


def test_a_machine_on_which_only_this_process_ran_has_no_others(machine: Path) -> None:
    seen = BackgroundLoad()
    machine.write_text("cpu  400 0 140 1400 60 0 0 0 0 0\n")
    assert seen.share() == 0


def test_a_system_that_does_not_say_is_taken_to_have_none(machine: Path) -> None:
    machine.unlink()
    assert BackgroundLoad().share() == 0
