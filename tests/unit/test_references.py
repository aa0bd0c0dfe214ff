"""What pages, docstrings and comments name is there: modules with their members, and files of this repository."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "presim"
GROUPS = {  # entry-point groups, which are no modules
    f"presim.{group}" for group in ("analyses", "cases", "collectives", "estimators", "passes", "schedules", "sources")
}
NAME = re.compile(r"`(presim(?:\.\w+)+)(?:\([^`]*\))?`")
PLACEHOLDERS = ("presim.cli.VERB", "presim.R.et", "presim.comm_groups.json", "presim.groups.json")  # files, not modules
FILE = re.compile(
    r"(?<![\w./-])((?:src/presim|tests|docs|examples|validation|benchmarks)/[\w./-]+\.(?:py|md|toml|csv|json|cpp|h))"
)
PAGES = [
    *(path for folder in ("docs", "examples") for path in sorted((ROOT / folder).rglob("*.md"))),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
SOURCES = sorted(path for path in PACKAGE.rglob("*.py"))


@functools.cache
def members(module: Path) -> frozenset[str]:
    """Names that a module defines or imports at its top level, and fields and methods of its classes."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name)
    return frozenset(names)


def is_there(name: str) -> bool:
    """Whether a dotted name is a module or package, or a member of one."""
    parts = name.split(".")[1:]
    for count in range(len(parts), -1, -1):
        path = PACKAGE.joinpath(*parts[:count])
        module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if path.is_dir() and not module.is_file():  # data
            return count == len(parts)
        if module.is_file():
            lazy = re.findall(r'"(\w+)"', module.read_text()) if not count else []
            return set(parts[count:]) <= members(module) | set(lazy)
    return False


def missing(text: str) -> list[str]:
    """The names and files of a text that are not there."""
    names = [
        name for name in NAME.findall(text) if name not in GROUPS and name not in PLACEHOLDERS and not is_there(name)
    ]
    return names + [file for file in FILE.findall(text) if not (ROOT / file).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_is_there(page: Path) -> None:
    assert not missing(page.read_text())


def test_docstrings_and_comments_name_what_is_there() -> None:
    """Pages and benchmarks that they name may be other projects'."""
    wrong = {
        path: [name for name in missing(path.read_text()) if name[:4] in ("pres", "src/", "test")] for path in SOURCES
    }
    assert not {str(path.relative_to(ROOT)): names for path, names in wrong.items() if names}


def test_what_is_not_there_is_found() -> None:
    assert missing("`presim.engine.nowhere` and `presim.engine.simulation_options.Options` in docs/no.md") == [
        "presim.engine.nowhere",
        "docs/no.md",
    ]
