"""The syntax trees of presim's modules, parsed once a process; tests of all modules run by room.

Nothing is parsed where tests are collected: rooms are known from the folders.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "presim"


@functools.cache
def source_trees() -> dict[Path, ast.Module]:
    """By path, in order."""
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sorted(PACKAGE.rglob("*.py"))}


def by_room(modules: Iterable[str]) -> dict[str, list[str]]:
    """Full names of modules by the part of presim that they lie in."""
    rooms: dict[str, list[str]] = {}
    for module in modules:
        rooms.setdefault(module.split(".")[1] if "." in module else module, []).append(module)
    return rooms


def rooms() -> list[str]:
    """The parts of presim: folders and modules beside each other."""
    entries = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return sorted(entries)
