"""The operator hook, as Python calls it: a C library without state of its own."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

OnRead = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64)  # operator, origin, first bytes
OnReplay = ctypes.CFUNCTYPE(None, ctypes.c_int64)  # key
OnMisuse = ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # what was done wrong
OnCollective = ctypes.CFUNCTYPE(ctypes.c_int32)  # returns `Hook.site_id` of the line that calls it


class Hook:
    """Loads the hook into this process; torch must be imported before."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        library.presim_intern.argtypes = [ctypes.c_char_p]
        library.presim_intern.restype = ctypes.c_int32
        library.presim_enter_scope.argtypes = [ctypes.c_int32]
        library.presim_retag.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
        library.presim_step.argtypes = [ctypes.c_int64]
        library.presim_launch_begins.restype = ctypes.c_int64
        library.presim_launch_ends.argtypes = [ctypes.c_int64, ctypes.c_int32]
        library.presim_add_own_time.argtypes = [ctypes.c_int64]
        library.presim_values_enable.argtypes = [ctypes.c_char_p, OnRead]
        library.presim_values_origin.argtypes = [ctypes.c_int64, ctypes.c_int64]
        library.presim_values_know.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32]
        library.presim_values_route_as.argtypes = [ctypes.c_int64]
        self.route_as = library.presim_values_route_as  # the rank for whose tokens experts are drawn
        self.enable_values = library.presim_values_enable
        self.origin_of = library.presim_values_origin  # (address, bytes) -> device_values.policies.Origin
        self.know = library.presim_values_know
        library.presim_values_small.argtypes = [ctypes.c_bool, ctypes.c_int64, ctypes.c_int64]
        library.presim_values_small.restype = ctypes.c_bool
        self.is_small = library.presim_values_small  # (integers, elements, bytes of each): few enough to be computed
        library.presim_values_written.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_bool]
        self.written = library.presim_values_written  # (address, elements, c10::ScalarType, is a loss): nobody knows it
        library.presim_values_at_replay.argtypes = [ctypes.c_int64, OnReplay, OnReplay, ctypes.c_int64]
        self.at_replay = library.presim_values_at_replay  # (stream, what to call, what to call at the end, key)
        self.descriptions = library.presim_interned  # how many distinct things the program has asked for
        self.enter_scope = library.presim_enter_scope
        self.leave_scope = library.presim_leave_scope
        self._retag = library.presim_retag
        self.step = library.presim_step
        self.add_own_time = library.presim_add_own_time  # ns that observing took, to be left out of host time
        self.install = library.presim_hook_install
        self.track_memory = library.presim_hook_track_memory
        self.launch_begins = library.presim_launch_begins
        self.launch_ends = library.presim_launch_ends
        self._intern = library.presim_intern
        self._group_ranks = library.presim_group_ranks
        self._call_sites = library.presim_call_sites
        self._misuse = library.presim_on_misuse
        self._scopes: dict[str, int] = {}
        self._sites: dict[str, int] = {}
        self.exchange = ""  # what the collectives that are asked for now stand for (`adapters.deep_ep_exchange`)

    def retag(self, addresses: array[int], category: int) -> None:
        """The blocks that hold these addresses (of type "q") belong to a category of memory."""
        if addresses:
            self._retag(addresses.buffer_info()[0], len(addresses), category)

    def ask_call_sites(self, line: Callable[[], str]) -> None:
        """At every collective of PyTorch's: where the script calls it."""
        self._on_collective = OnCollective(lambda: self._site_id(line()))  # kept alive as long as it may be called
        self._call_sites(self._on_collective)

    def tell_misuse(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with what CUDA would punish, as a clause, while the script's line is being run."""
        self._on_misuse = OnMisuse(lambda text: listener(text.decode()))
        self._misuse(self._on_misuse)

    def _site_id(self, line: str) -> int:
        text = f"site at={line.replace(' ', '_')}" + (f" exchange={self.exchange}" if self.exchange else "")
        known = self._sites.get(text)
        if known is None:
            known = self._sites[text] = self._intern(text.encode())
        return known

    def tell_group(self, name: str, ranks: Sequence[int]) -> None:
        """The global ranks of a process group, in its order."""
        self._group_ranks(name.encode(), (ctypes.c_int64 * len(ranks))(*ranks), len(ranks))

    def operator_id(self, text: str) -> int:
        """The recorder's id of an operator, described as `presim.capture.reading.operators` reads it."""
        return int(self._intern(text.encode()))

    def scope_id(self, name: str) -> int:
        """The recorder's id of a module scope."""
        known = self._scopes.get(name)
        if known is None:
            known = self._scopes[name] = self._intern(f"scope name={name.replace(' ', '_')}".encode())
        return known
