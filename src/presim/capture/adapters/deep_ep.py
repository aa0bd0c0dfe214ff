"""Replace the module ``deep_ep``: DeepEP cannot be built or run without GPUs.

DeepEP's kernels send tokens to experts through shared GPU memory and the network, below the libraries that presim
emulates. But its calls describe their work: each one becomes one collective that records how tokens are distributed,
and its outputs have the sizes that follow from the routing.
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

_PROVIDED = {
    "deep_ep_buffers": ("Buffer",),
    "deep_ep_config": ("Config",),
    "deep_ep_events": ("EventHandle", "EventOverlap"),
    "deep_ep_hybrid": ("HybridEPBuffer", "indices_to_map"),
}
_NAMES = ("deep_ep", "deep_ep.utils", "deep_ep.hybrid_ep_buffer")


class DeepEp:
    """Provides the replacement, whether or not the library is installed, and records whether it was used."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self._exchange: Any = None  # `deep_ep_exchange.exchange`, once the script has imported the library

    def install(self) -> None:
        """Install for later imports of ``deep_ep``."""
        sys.meta_path.insert(0, _Finder(self))

    def notes(self) -> tuple[str, ...]:
        """Notes for the result."""
        if self._exchange is None or not self._exchange.was_used:
            return ()
        return (
            "DeepEP was replaced: its exchanges take the times published for it, for the experts that the program's "
            "tokens choose where these are computed, else for evenly chosen ones; other ranks are assumed to send this "
            "one what it sends to itself.",
        )

    def provided(self) -> dict[str, Any]:
        """The names in the library's modules."""
        from presim.capture.adapters import deep_ep_exchange

        self._exchange = deep_ep_exchange.exchange
        self._exchange.hook = self.hook
        modules = ((importlib.import_module(f"{__package__}.{name}"), names) for name, names in _PROVIDED.items())
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
        vars(module).update(self.owner.provided())
