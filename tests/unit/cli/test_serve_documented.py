"""The pages about serving have every option of ``presim serve``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presim.cli.serve import command

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = ("serving", "fleets", "kv-tiers", "speculative", "serving-calibrate", "serving-captured", "serving-endpoint")
PAGES = [*(DOCS / "guide" / f"{name}.md" for name in GUIDES), *sorted((DOCS / "reference").glob("serving-*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
OPTIONS = sorted(name for option in command.params for name in option.opts if name.startswith("--"))


@pytest.mark.parametrize("option", OPTIONS)
def test_a_page_names_the_option(option: str) -> None:
    assert re.search(rf"{re.escape(option)}(?![a-z0-9-])", TEXT)
