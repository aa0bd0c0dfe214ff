"""Python interface of the operator hook, a C library."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

OnRead = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64)  # operator, origin, first bytes
OnReplay = ctypes.CFUNCTYPE(None, ctypes.c_int64)  # key
OnMisuse = ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # description of the misuse
OnCollective = ctypes.CFUNCTYPE(ctypes.c_int32)  # returns `Hook.site_id` of the calling line


class Hook:
    """Loads the hook into this process; torch must be imported before."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        library.presim_intern.argtypes = [ctypes.c_char_p]
        library.presim_intern.restype = ctypes.c_int32
        library.presim_enter_scope.argtypes = [ctypes.c_int32]
        library.presim_enter_named.argtypes = [ctypes.c_int32]
        library.presim_retag.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
        library.presim_step.argtypes = [ctypes.c_int64]
        library.presim_fetch.argtypes = library.presim_fetch_wait.argtypes = [ctypes.c_int64]
        library.presim_launch_begins.restype = ctypes.c_int64
        library.presim_launch_ends.argtypes = [ctypes.c_int64, ctypes.c_int32]
        library.presim_add_own_time.argtypes = [ctypes.c_int64]
        library.presim_values_enable.argtypes = [ctypes.c_char_p, OnRead]
        library.presim_values_origin.argtypes = [ctypes.c_int64, ctypes.c_int64]
        library.presim_values_know.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32]
        library.presim_values_route_as.argtypes = [ctypes.c_int64]
        self.route_as = library.presim_values_route_as  # the rank whose tokens decide the experts
        self.enable_values = library.presim_values_enable
        self.origin_of = library.presim_values_origin  # (address, bytes) -> device_values.policies.Origin
        self.set_origin = library.presim_values_know
        library.presim_values_small.argtypes = [ctypes.c_bool, ctypes.c_int64, ctypes.c_int64]
        library.presim_values_small.restype = ctypes.c_bool
        self.is_small = library.presim_values_small  # (integers, elements, bytes of each): whether to compute values
        library.presim_values_written.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, ctypes.c_bool]
        self.mark_written = (
            library.presim_values_written
        )  # (address, elements, c10::ScalarType, is a loss): mark as unknown
        library.presim_values_route_map.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64]
        self.write_route_map = library.presim_values_route_map  # (address, rows, experts, experts of each row)
        library.presim_values_at_replay.argtypes = [ctypes.c_int64, OnReplay, OnReplay, ctypes.c_int64]
        self.at_replay = library.presim_values_at_replay  # (stream, callback, callback at the end, key)
        self.descriptions = library.presim_interned  # number of distinct descriptions recorded
        self.enter_scope = library.presim_enter_scope  # of a module's forward pass
        self.enter_named_scope = library.presim_enter_named  # of anything else: the phase stays
        self.leave_scope = library.presim_leave_scope
        self._retag = library.presim_retag
        self.step = library.presim_step
        self.fetch, self.fetch_wait = library.presim_fetch, library.presim_fetch_wait
        self.add_own_time = (
            library.presim_add_own_time
        )  # adds ns spent on observing, which are subtracted from host time
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
        self.exchange = ""  # stands in the records of the current collectives (`adapters.deep_ep_exchange`)

    def retag(self, addresses: array[int], category: int) -> None:
        """Assign the blocks at these addresses (typecode "q") to a memory category."""
        if addresses:
            self._retag(addresses.buffer_info()[0], len(addresses), category)

    def set_call_site_callback(self, line: Callable[[], str]) -> None:
        """Call ``line`` at every collective of PyTorch to find the calling line."""
        self._on_collective = OnCollective(lambda: self._site_id(line()))  # must stay alive as long as it may be called
        self._call_sites(self._on_collective)

    def set_misuse_callback(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with a description of each misuse, while the script's line is executing."""
        self._on_misuse = OnMisuse(lambda text: listener(text.decode()))
        self._misuse(self._on_misuse)

    def _site_id(self, line: str) -> int:
        text = f"site at={line.replace(' ', '_')}" + (f" exchange={self.exchange}" if self.exchange else "")
        site_id = self._sites.get(text)
        if site_id is None:
            site_id = self._sites[text] = self._intern(text.encode())
        return site_id

    def record_group(self, name: str, ranks: Sequence[int]) -> None:
        """Record the global ranks of a process group, in its order."""
        self._group_ranks(name.encode(), (ctypes.c_int64 * len(ranks))(*ranks), len(ranks))

    def record_mesh(self, dimension: str) -> None:
        """Record the name of a mesh's dimension that has all ranks of the job."""
        self._intern(f"mesh dimension={dimension}".encode())

    def operator_id(self, text: str) -> int:
        """The recorder's id of an operator, described in the format of `presim.capture.reading.launch_operators`."""
        return int(self._intern(text.encode()))

    def scope_id(self, name: str) -> int:
        """The recorder's id of a module scope."""
        scope_id = self._scopes.get(name)
        if scope_id is None:
            scope_id = self._scopes[name] = self._intern(f"scope name={name.replace(' ', '_')}".encode())
        return scope_id
