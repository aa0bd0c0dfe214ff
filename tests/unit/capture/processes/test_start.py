"""How rank processes and their descendants end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from presim.capture.processes import start as processes
from presim.capture.processes.rank_process import Executed, Start
from presim.capture.processes.start import Watch, supervise
from presim.errors import CaptureError

ENVIRONMENT = {**os.environ, "PYTHONPATH": ":".join(sys.path)}


def start(control: Path, rank: int = 0) -> Start:
    return Start(rank, control, ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Told(Watch):
    """Passes on what has ended; with None it ends no others."""

    def __init__(
        self,
        ended: Callable[[int, int], bool | None] = lambda rank, code: None,
        waits: Callable[[int], bool] = lambda rank: False,
    ) -> None:
        self._ended, self._waits = ended, waits

    def ended(self, rank: int, code: int) -> bool:
        return bool(self._ended(rank, code))

    def is_waiting(self, rank: int) -> bool:
        return self._waits(rank)


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A FIFO as control file that nothing writes to: the runner blocks on it before importing torch."""
    os.mkfifo(tmp_path / "control")
    return tmp_path / "control"


def test_the_exit_codes_of_the_processes_are_returned(tmp_path: Path) -> None:
    """A missing control file ends the runner."""
    seen: list[tuple[int, int]] = []
    starts = [start(tmp_path / "a", 3), start(tmp_path / "b", 5)]
    assert supervise(starts, Told(lambda *one: seen.append(one)), limit_s=60) == {3: 1, 5: 1}
    assert sorted(seen) == [(3, 1), (5, 1)]


def test_a_failed_rank_ends_the_others(tmp_path: Path, waiting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_GRACE_S", 0.0)
    assert supervise([start(tmp_path / "absent", 0), start(waiting, 1)], limit_s=60) == {0: 1, 1: -signal.SIGTERM}


def test_a_failed_optional_rank_does_not_end_the_others(tmp_path: Path, waiting: Path) -> None:
    """The other one fails by itself on a control file written after the first has failed."""

    def ended(rank: int, code: int) -> None:
        if rank == 0:
            waiting.write_text("no control file")

    starts = [start(tmp_path / "absent", 0), start(waiting, 1)]
    assert supervise(starts, Told(ended), limit_s=60, optional=[0]) == {0: 1, 1: 1}


def test_a_watch_can_end_all_when_one_ends(tmp_path: Path, waiting: Path) -> None:
    starts = [start(tmp_path / "absent", 0), start(waiting, 1)]
    codes = supervise(starts, Told(lambda rank, code: rank == 0), limit_s=60)
    assert codes == {0: 1, 1: -signal.SIGTERM}


def test_a_script_beyond_the_limit_is_ended_with_one_sentence(waiting: Path) -> None:
    with pytest.raises(CaptureError, match=r"^the script had not ended after 0 s; it may wait for a value"):
        supervise([start(waiting)], limit_s=0)


def test_the_timeout_names_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    starts = []
    for rank in range(3):
        os.mkfifo(tmp_path / str(rank))
        starts.append(start(tmp_path / str(rank), rank))
    with pytest.raises(CaptureError, match=r"^rank 1, which the others wait for, had not ended after 0 s; it may"):
        supervise(starts, Told(waits=lambda rank: rank != 1), limit_s=0)
    with pytest.raises(CaptureError, match=r"^rank 0 had not ended after 0 s; it may"):
        supervise(starts, limit_s=0)


WAITS = "import signal, sys; print('ready', flush=True); signal.pause()"
STARTS_ANOTHER = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {WAITS!r}])
child.wait()
"""
LEAVES_ANOTHER = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {WAITS!r}])
"""


@pytest.mark.parametrize("script", [WAITS, STARTS_ANOTHER, LEAVES_ANOTHER], ids=["itself", "child", "orphan"])
def test_an_interrupt_ends_the_process_and_its_descendants(tmp_path: Path, script: str) -> None:
    """The shared pipe closes only when the last of them has ended, whether or not their leader has before."""
    reading, writing = os.pipe()

    def execute(_: Start) -> Executed:
        return Executed(subprocess.Popen([sys.executable, "-c", script], stdout=writing, start_new_session=True))

    def interrupted() -> None:
        with processes._processes([start(tmp_path / "none")], execute):
            os.close(writing)
            assert output.readline() == "ready\n"
            raise KeyboardInterrupt

    with open(reading) as output:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert output.read() == ""


class _Orphaning(Executed):
    """Ends by itself and leaves a child that ignores SIGTERM."""

    def __init__(self, stdout: int) -> None:
        deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"
        script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deaf!r}])"
        super().__init__(subprocess.Popen([sys.executable, "-c", script], stdout=stdout, start_new_session=True))


def test_descendants_of_a_process_that_has_ended_are_ended(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with open(reading) as output:
        codes = supervise([start(tmp_path / "none")], limit_s=60, start=lambda one: _Orphaning(writing))
        os.close(writing)
        assert codes == {0: 0}
        assert output.read() in ("ready\n", "")  # it is closed when the last one is gone
