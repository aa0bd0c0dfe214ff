"""The documentation site builds without a warning, fetches nothing, and the code on its pages parses."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def _commands(text: str) -> None:
    """The lines of a shell session that are typed."""
    for line in re.findall(r"^\$ (.*)$", text.replace("\\\n", " "), re.MULTILINE):
        shlex.split(line, comments=True)


PARSERS: dict[str, Callable[[str], object]] = {
    "bash": lambda text: shlex.split(text, comments=True),
    "console": _commands,
    "json": json.loads,
    "python": ast.parse,
    "toml": tomllib.loads,
    "text": str,
}


def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    """Strict: each link and anchor resolves, and ``docs/index.md`` lists each page."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 50
    script = r"<(?:script|img|iframe)[^>]* src=\"?https?:[^>]*>"
    fetched = re.compile(script + r"|<link[^>]*rel=\"?stylesheet[^>]*https?:[^>]*>")
    assert not {found for page in pages for found in fetched.findall(page.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_parse(page: Path) -> None:
    """Python, TOML, JSON and shell sessions; a block in another language needs a parser here."""
    for indent, language, text in _BLOCK.findall(page.read_text()):
        PARSERS[language](re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
