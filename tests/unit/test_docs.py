"""Generated pages are up to date, the site builds without a warning and fetches nothing, and code on pages parses."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def script(name: str) -> ModuleType:
    """A script of ``docs``, which is in no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "docs/reference/cli.md",
        "docs/reference/result.md",
        "docs/reference/result.schema.json",
        "docs/reference/rl-recipes.md",
        "src/presim/cli/keyword_types.py",
    ],
)
def test_generated_files_are_up_to_date(name: str) -> None:
    """After a change of the code: ``python docs/generate.py``."""
    expected = script("generate").generated()[ROOT / name]
    assert (ROOT / name).read_text() == expected


def test_every_generated_file_is_checked() -> None:
    """A file that is added is added above."""
    assert len(script("generate").generated()) == 5


@pytest.mark.parametrize("name", ["README", "PAGE"])
def test_accuracy_figures_are_those_of_the_predictions(name: str) -> None:
    """``docs/validation.py`` writes them; nobody copies them by hand."""
    page = script("validation")
    path = getattr(page, name)
    rows = page.read([str(page.RESULTS / "predictions.csv")])
    assert page.with_figures(path.read_text(), rows) == path.read_text()


def test_the_table_of_accuracy_is_short() -> None:
    """Eight rows at most, and each source is in one of them."""
    page = script("validation")
    rows = page.read([str(page.RESULTS / "predictions.csv")])
    families = page.families(page.measured(rows))
    assert len(families) <= 8
    *parts, _, _ = families.values()
    assert sum(map(len, parts)) == sum(bool(row["error"] or row["memory_error"]) for row in page.measured(rows))


def test_computed_rows_count_nowhere() -> None:
    """They stay among the predictions; the tables have the measured runs of their source alone."""
    page = script("validation")
    rows = page.read([str(page.RESULTS / "predictions.csv")])
    kept = page.measured(rows)
    assert len(kept) < len(rows)
    runs = len([row for row in kept if "VIA-Research/vTrain" in row["source"] and row["error"]])
    assert f"VIA-Research/vTrain | {runs} |" in page.TABLES.read_text()


def test_the_report_in_the_readme_is_described_as_it_is() -> None:
    """``docs/picture.py`` draws it anew; what stands for it in words has the same figures."""
    picture = (ROOT / "docs" / "pictures" / "report.svg").read_text().replace("&#160;", " ")
    words = re.search(r"step time (.+?), MFU (.+?) %, memory (.+?),", (ROOT / "README.md").read_text())
    assert words is not None
    step, mfu, memory = words.groups()
    for figure in (step, f"{mfu}%", memory):
        assert f">{figure}" in picture


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
    "yaml": yaml.safe_load,
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
    """Python, TOML, JSON, YAML and shell sessions."""
    for indent, language, text in _BLOCK.findall(page.read_text()):
        PARSERS.get(language, str)(re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
