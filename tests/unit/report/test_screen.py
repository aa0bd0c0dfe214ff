"""What all reports for people share."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.padding import Padding

from presim.report.screen import Title, show

WHERE = "rank 0 of 128 · 16 x 8 NVIDIA H100 80GB HBM3"


def printed(command: str, width: int) -> list[str]:
    out = io.StringIO()
    show(Console(file=out, width=width, highlight=False), Title(command, WHERE), 104)
    return out.getvalue().splitlines()


def test_a_short_command_has_its_cluster_beside_it() -> None:
    assert printed("train.py", 80)[0] == f"presim train.py{'':21}{WHERE}"


@pytest.mark.parametrize("length", range(20, 60))
def test_command_and_cluster_are_separated(length: int) -> None:
    lines = printed("x" * length, 80)
    assert f"x{WHERE}" not in "\n".join(lines)
    assert "x" * length in "\n".join(lines)


@pytest.mark.parametrize("width", [40, 60, 80, 104])
@pytest.mark.parametrize("command", ["train.py " + "--layers 126 " * 60, "/folder" * 100])
def test_a_long_command_is_cut_to_two_lines(command: str, width: int) -> None:
    *_, first, second, rule = printed(command, width)
    assert max(map(len, (first, second, rule))) <= width
    assert first.startswith(command[:20])
    assert second.endswith(" …")


def test_files_get_no_trailing_spaces() -> None:
    out = io.StringIO()
    show(Console(file=out, width=40), Padding("words", (1, 0, 0, 2)), 104)
    assert out.getvalue() == "\n  words\n"
