"""What people read: it names no place on one machine, its links lead somewhere, its commands exist."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from presim.cli.main import VERBS

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("src", "tests", "docs", "examples", "requirements", "benchmarks", "validation")
SUFFIXES = {".cpp", ".h", ".json", ".md", ".py", ".toml", ".txt"}
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def written_files() -> list[Path]:
    """Files that people write."""
    files = [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    return [ROOT / "Makefile", ROOT / ".ci" / "run", *(path for path in files if path.suffix in SUFFIXES)]


def test_no_file_names_a_place_on_the_machine_it_was_written_on() -> None:
    """Neither this checkout's folder, nor anybody's home, nor the interpreter's."""
    places = {str(place) for place in (ROOT, Path.home(), Path(sys.base_prefix))} - {"/", "/usr"}
    pattern = re.compile("|".join(rf"(?<![\w./-]){re.escape(place)}/" for place in places))
    assert not [str(path) for path in written_files() if pattern.search(path.read_text(errors="replace"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_on_a_page_exist(page: Path) -> None:
    """Every `make TARGET` is a target, every `presim VERB` a verb."""
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:\$ |`)make ([a-z-]+)", text)) <= targets
    assert set(re.findall(r"(?:\$ |`)presim ([a-z]+)", text)) <= set(VERBS)


def test_every_declared_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = (ROOT / "requirements" / "constraints.txt").read_text().lower().replace("_", "-")
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["dev"], *extras["examples"]]
    names = {re.split(r"[^\w-]", line)[0] for line in declared}
    assert not {name for name in names if f"\n{name}==" not in pins}
