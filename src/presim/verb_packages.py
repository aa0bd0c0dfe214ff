"""Packages that share their name with a verb: `presim.search` is one, and `presim.search(…)` a function."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any


class _Verb(types.ModuleType):
    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The function of `presim.api` with the package's name."""
        api = importlib.import_module("presim.api")  # when it is called: this module is a base of all parts
        return getattr(api, self.__name__.rpartition(".")[2])(*args, **keywords)


def make_callable(package: str) -> None:
    """Let calls of a package, by its full name, call the verb."""
    sys.modules[package].__class__ = _Verb
