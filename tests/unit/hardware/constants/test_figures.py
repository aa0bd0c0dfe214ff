"""Constants are data: each has a unit, a source, a date and a command that exists."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from presim.hardware import constants as calibration
from presim.hardware.constants import SourcedConstant

ROOT = Path(__file__).parents[4]
SOURCES = "\n".join(path.read_text() for path in (ROOT / "src" / "presim").rglob("*.py"))


@pytest.mark.parametrize(("name", "figure"), calibration.figures().items())
def test_a_figure_says_where_it_comes_from(name: str, figure: SourcedConstant) -> None:
    assert figure.unit
    assert figure.meaning
    assert figure.source
    datetime.date.fromisoformat(figure.date)
    for script in re.findall(r"^python (\S+)", figure.command):
        assert (ROOT / script).is_file()


@pytest.mark.parametrize("name", calibration.figures())
def test_a_figure_is_read(name: str) -> None:
    assert f'"{name}"' in SOURCES


def test_a_single_figure_is_not_read_as_an_interval() -> None:
    with pytest.raises(AssertionError, match=r"^host.server_factor is a single figure$"):
        calibration.interval("host.server_factor")
    with pytest.raises(AssertionError, match=r"^nccl.peer_s is an interval$"):
        calibration.value("nccl.peer_s")
