"""Patching modules when the script imports them."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from presim.capture.script.after_import import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of an importable module that is not imported yet."""
    name = "a_module_of_the_script"
    (tmp_path / f"{name}.py").write_text("def answer():\n    return 41\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def change(module: ModuleType) -> None:
    module.changed = [*getattr(module, "changed", []), module.answer()]  # type: ignore[attr-defined]


def test_a_module_is_patched_after_its_import(module: str) -> None:
    """Patched once, with its names defined; its source is still found, and the finder is removed."""
    before = list(sys.meta_path)
    when_imported(module, change)
    assert module not in sys.modules
    imported = __import__(module)
    assert imported.changed == [41]
    assert inspect.getsource(imported.answer) == "def answer():\n    return 41\n"
    assert sys.meta_path == before


def test_an_imported_module_is_patched_at_once(module: str) -> None:
    imported = __import__(module)
    when_imported(module, change)
    assert imported.changed == [41]


def test_a_missing_module_is_still_not_found() -> None:
    when_imported("no_such_module_at_all", change)
    with pytest.raises(ModuleNotFoundError):
        __import__("no_such_module_at_all")
