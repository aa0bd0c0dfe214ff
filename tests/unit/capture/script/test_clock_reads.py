"""Recording which branches of a script the time of day decides."""

from __future__ import annotations

import pickle
import runpy
import threading
import time
import timeit
from pathlib import Path

import pytest

from presim.capture.script.clock_reads import ClockReads

SCRIPT = """
import time, timeit
from datetime import datetime
from threading import Thread
from time import perf_counter
from helpers import spent
class Timer:
    clock = time.time
begin = Timer().clock()
if time.time() < begin:
    raise SystemExit  # outside of loops
for step in range(3):
    if perf_counter() < 0.5:  # named
        break
    if timeit.default_timer() < 0.5:  # named
        break
    if spent() > 1e9:  # named
        break
    if datetime.now().year < 2000:  # named
        break
    print(time.time() - begin)
def watch():
    for _ in range(2):
        if time.monotonic() < 0.5:
            break
thread = Thread(target=watch)
thread.start()
thread.join()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script; clocks are put back after the test."""
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
        monkeypatch.setattr(time, name, getattr(time, name))
    monkeypatch.setattr(timeit, "default_timer", timeit.default_timer)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helpers.py").write_text(
        "import time\nbegin = time.time()\ndef spent():\n    return time.time() - begin\n"
    )
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def lines_of(script: Path) -> list[str]:
    """The lines of a script that runs in a thread of its own, where no loop of the test runner is around it."""
    lines: list[str] = []

    def run() -> None:
        reads = ClockReads(str(script))
        reads.install()
        runpy.run_path(str(script), run_name="__main__")
        lines.extend(reads.deciding_lines())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return lines


def test_branches_in_loops_are_named_that_the_clock_decides(script: Path) -> None:
    """Also where a helper or a date tells the time; not what other threads or set-up decide."""
    named = [number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# named")]
    assert sorted(lines_of(script)) == [f"{script}:{line}" for line in named]


def test_the_note_names_the_first_three(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is left out if the script sees the cluster's clock."""
    reads = ClockReads(str(script))
    monkeypatch.setattr(reads, "deciding_lines", lambda: ["a.py:1", "a.py:2", "b.py:3", "b.py:4"])
    assert reads.notes() == [
        "The script decides by the time of day at a.py:1, a.py:2, b.py:3 and 1 more. It saw this machine's clock, so "
        "it may do something else on the cluster; --live shows it the cluster's clock."
    ]
    monkeypatch.setenv("PRESIM_LIVE", "1.0 0 0 0 0 0")
    watched = time.time
    simulated = ClockReads(str(script))
    simulated.install()
    assert (simulated.notes(), time.time) == ([], watched)


def test_clocks_stay_what_they_were(script: Path) -> None:
    before = time.perf_counter
    ClockReads(str(script)).install()
    assert time.perf_counter() > 0
    assert time.perf_counter.__name__ == "perf_counter"
    assert pickle.loads(pickle.dumps(time.time)) is time.time
    assert before() <= time.perf_counter()
