"""The guide to serving has every option of ``presim serve``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presim.cli.serve import command

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "serving.md").read_text()
OPTIONS = sorted(name for option in command.params for name in option.opts if name.startswith("--"))


@pytest.mark.parametrize("option", OPTIONS)
def test_the_guide_names_the_option(option: str) -> None:
    assert re.search(rf"{re.escape(option)}(?![a-z0-9-])", GUIDE)
