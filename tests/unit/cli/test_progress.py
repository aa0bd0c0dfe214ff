"""Progress goes to standard error: nothing where nobody asked, lines off a terminal."""

from __future__ import annotations

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
    with progress._in_lines(file, 1e-3) as say:
        say("comparing ranks 1 to 7")
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
