"""Progress goes to standard error: nothing where nobody asked, lines off a terminal."""

from __future__ import annotations

import contextlib
import io
import threading

import pytest

from presim.cli import progress


class Written(io.StringIO):
    """A file that tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.is_written = threading.Event()

    def flush(self) -> None:
        self.is_written.set()


def test_off_a_terminal_a_line_says_the_activity_and_the_seconds_so_far() -> None:
    file = Written()
    with progress._in_lines(file, 1e-3, lambda: "comparing ranks 1 to 7", 1e-3):
        assert file.is_written.wait(60)
    assert file.getvalue().splitlines()[0] == "presim: comparing ranks 1 to 7 (0 s)"


@pytest.mark.parametrize(("quiet", "lines"), [(True, True), (False, False)])
def test_quiet_and_verbs_without_lines_say_nothing(
    quiet: bool, lines: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 1e-6)
    with progress.progress(quiet, lines=lines) as say:
        say("searching")
    assert capsys.readouterr().err == ""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Written:
    """Standard error of a process of the command line whose lines come at once."""
    file = Written()
    monkeypatch.setattr(progress, "LINE_EVERY_S", 1e-3)
    monkeypatch.setattr(progress._Verb, "is_announced", True)
    return file


def test_a_verb_that_works_says_so(lines: Written) -> None:
    with contextlib.redirect_stderr(lines), progress.working("graph take"):
        assert lines.is_written.wait(60)
    assert lines.getvalue().splitlines()[0] == "presim: graph take (0 s)"


def test_a_verb_says_what_its_progress_does(lines: Written) -> None:
    with contextlib.redirect_stderr(lines), progress.working("gate"), progress.progress() as say:
        say("predicting job 2 of 5")
        lines.is_written.clear()
        assert lines.is_written.wait(60)
    assert "presim: predicting job 2 of 5 (0 s)" in lines.getvalue().splitlines()


def test_lines_of_a_verb_s_own_stand_alone(lines: Written) -> None:
    with contextlib.redirect_stderr(lines), progress.working("run"), progress.progress(lines=True) as say:
        say("comparing ranks")
        lines.is_written.clear()
        assert lines.is_written.wait(60)
    subjects = [line.rpartition(" (")[0] for line in lines.getvalue().splitlines()]  # the first without a time
    told = [subject or line for subject, line in zip(subjects, lines.getvalue().splitlines(), strict=True)]
    assert set(told[told.index("presim: comparing ranks") :]) == {"presim: comparing ranks"}


def test_a_quiet_verb_and_one_in_python_say_nothing(lines: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.redirect_stderr(lines), progress.working("run", quiet=True):
        pass
    monkeypatch.setattr(progress._Verb, "is_announced", False)
    with contextlib.redirect_stderr(lines), progress.working("run"):
        pass
    assert lines.getvalue() == ""
