"""The file of marks."""

from __future__ import annotations

from pathlib import Path

from presim.capture.steps.marks import FILE, Event, Mark, MarkWriter, read_marks
from presim.capture.steps.positions import Position

MARKS = [
    Mark(0, Event.DATA, Position((), 0)),
    Mark(12, Event.MODEL, Position(("a b.py:3", "c.py:4"), 1, is_entered=True), 1, 0),
    Mark(30, Event.UPDATE, Position(("a b.py:3",), 0), 7, 1),
]


def test_marks_are_read_as_they_were_written(tmp_path: Path) -> None:
    writer = MarkWriter(tmp_path)
    for mark in MARKS:
        writer.write(mark)
    assert list(read_marks(tmp_path)) == MARKS


def test_a_line_that_a_killed_process_did_not_finish_is_left_out(tmp_path: Path) -> None:
    assert list(read_marks(tmp_path)) == []
    text = "".join(mark.to_line() for mark in MARKS)
    (tmp_path / FILE).write_text(text[:-4])
    assert list(read_marks(tmp_path)) == MARKS[:-1]
