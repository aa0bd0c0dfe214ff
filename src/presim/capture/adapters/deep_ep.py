"""Replaces the module ``deep_ep``: DeepEP cannot be built or run without GPUs.

Its library passes tokens to experts through memory that GPUs share and through the network, by kernels of its own, past
everything that presim stands below. What a program asks of it is known from its arguments, though: each call becomes
one collective that carries how tokens are dealt out, and its outputs have the sizes that follow from the routing.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from presim.capture.script.hook import Hook

_OFFERED = {
    "deep_ep_buffers": ("Buffer",),
    "deep_ep_config": ("Config",),
    "deep_ep_events": ("EventHandle", "EventOverlap"),
    "deep_ep_hybrid": ("HybridEPBuffer", "indices_to_map"),
}
_NAMES = ("deep_ep", "deep_ep.utils", "deep_ep.hybrid_ep_buffer")


class DeepEp:
    """Offers the stand-in, whether or not the library is installed; knows whether it was used."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self._exchange: Any = None  # `deep_ep_exchange.exchange`, once the script imports the library

    def install(self) -> None:
        """For any import of ``deep_ep`` from here on."""
        sys.meta_path.insert(0, _Finder(self))

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know."""
        if self._exchange is None or not self._exchange.was_used:
            return ()
        return (
            "DeepEP was stood in for: its exchanges take what published tables of it say, for the experts that the "
            "program's tokens choose where that is computed, else for evenly chosen ones; other ranks are taken to "
            "send this one what it sends to itself.",
        )

    def offered(self) -> dict[str, Any]:
        """What the library's modules have, by name."""
        from presim.capture.adapters import deep_ep_exchange

        self._exchange = deep_ep_exchange.exchange
        self._exchange.hook = self.hook
        modules = ((importlib.import_module(f"{__package__}.{name}"), names) for name, names in _OFFERED.items())
        return {name: getattr(module, name) for module, names in modules for name in names}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, owner: DeepEp) -> None:
        self.owner = owner

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _NAMES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname == _NAMES[0])

    def exec_module(self, module: Any) -> None:
        vars(module).update(self.owner.offered())
