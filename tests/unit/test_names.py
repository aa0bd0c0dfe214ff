"""Variables and arguments are named by what they hold, not by pronouns or participles; each module has its own name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.source_trees import PACKAGE as SOURCES
from support.source_trees import rooms, source_trees

TOP_LEVEL = "presim"  # stands for the modules outside of packages
WORDS = """again alone apart asked at beside beyond both came chosen come each ends few found gave given gone here held
kept known left made more most moved near one others own place rest said says speak spoken taken there together wanted
when where who whole"""
FILLERS = frozenset(WORDS.split())
BY_SUBJECT = frozenset({"app", "cli", "report", "result", "verbs"})
LIMIT = 0.005  # share of a package's names
SAMPLE = """
def merge(first, *others, key=lambda one: one.size, **rest):
    __left = whole = 0
    for place, (each, size) in enumerate(first):
        sizes = [held for held in each if (found := held)]
    with open(key) as taken:
        self.kept, first[0] = known
    except_last = {here: there for here, there in pairs}
"""


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name, without underscores around it, of each variable that is assigned and of each argument."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name.strip("_")


def modules_of(package: str) -> list[Path]:
    """The modules of a package."""
    folders = {module: module.relative_to(SOURCES).parts[0] for module in source_trees()}
    return [m for m, folder in folders.items() if (TOP_LEVEL if folder == m.name else folder) == package]


PACKAGES = [TOP_LEVEL, *(room for room in rooms() if (SOURCES / room).is_dir())]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_packages_names_say_what_they_hold(package: str) -> None:
    count, fillers = 0, []
    for module in modules_of(package):
        for line, name in bound_names(source_trees()[module]):
            count += 1
            if name in FILLERS:
                fillers.append(f"{module.relative_to(SOURCES)}:{line}: {name}")
    assert len(fillers) <= LIMIT * count, f"{len(fillers)} of {count} names are fillers:\n" + "\n".join(fillers)


def test_a_modules_name_occurs_once() -> None:
    """Rooms that show or ask for what other rooms compute name a module by its subject, as those do."""
    paths: dict[str, list[str]] = {}
    for module in source_trees():
        path = module.relative_to(SOURCES)
        if not module.stem.startswith("__") and path.parts[0] not in BY_SUBJECT:
            paths.setdefault(module.name, []).append(str(path))
    assert not [modules for modules in paths.values() if len(modules) > 1]


def test_every_kind_of_binding_counts() -> None:
    names = sorted(name for _, name in bound_names(ast.parse(SAMPLE)) if name in FILLERS)
    assert " ".join(names) == "each found held here left one others place rest taken there whole"
