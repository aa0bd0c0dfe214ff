"""Patch a module once the script has imported it, without importing it for scripts that do not."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def when_imported(name: str, change: Callable[[Any], None]) -> None:
    """Call ``change`` with the module of that name: now if it is imported, else right after its import."""
    if name in sys.modules:
        change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, change))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module like Python's other finders, with a loader that calls back after the import."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self.name = name
        self.change = change

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.change)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, followed by a call of ``change``."""

    def __init__(self, loader: importlib.abc.Loader, change: Callable[[Any], None]) -> None:
        self.loader = loader
        self.change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # get_source, get_filename …, which tracebacks and inspect use

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        self.change(module)
