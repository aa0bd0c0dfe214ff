"""Wrong command lines end in one sentence, never in a traceback."""

from __future__ import annotations

from pathlib import Path

from support.reliability import command_lines
from support.reliability.campaign import called


def test_a_wrong_command_line_is_answered(tmp_path: Path) -> None:
    command_lines.prepare(tmp_path)
    lines = [command_lines.wrong(number) for number in range(2 * len(command_lines.GOOD))]
    found = {" ".join(map(repr, words)): called(words, tmp_path).wrong for words in lines}
    assert not {line: wrong for line, wrong in found.items() if wrong}
