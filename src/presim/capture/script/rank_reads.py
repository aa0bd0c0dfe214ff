"""Record where code outside PyTorch reads its rank. Without such reads, ranks differ only by PyTorch's own sharding.

Observed are launchers' variables, the rank functions of `torch.distributed` and device meshes, and samplers that give
each rank a shard of the data. Reads by PyTorch and Python itself do not count.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from presim.capture.ranks.sample import LOCAL_INDEX
from presim.capture.script.after_import import when_imported
from presim.capture.script.current_line import PRESIM_DIR, is_own

_GLOBAL = ("RANK", "GROUP_RANK", "NODE_RANK", "SLURM_PROCID", "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_VARIABLES = frozenset((*LOCAL_INDEX, *_GLOBAL))
_TORCH = str(Path(torch.__file__).parent) + "/"
_STDLIB, _SITE = sysconfig.get_path("stdlib") + "/", sysconfig.get_path("purelib") + "/"
_MAX_PLACES = 64  # places kept


class RankReads:
    """The places in this process that read the rank."""

    def __init__(self) -> None:
        self.places: dict[str, None] = {}  # in order; ``train.py:12 (RANK)``, or ``package (RANK)`` for a library
        self._seen: set[tuple[object, int, str]] = set()

    def install(self) -> None:
        """Install before the script runs."""
        self._watch_variables()
        if dist.is_available():
            distributed: Any = sys.modules["torch.distributed.distributed_c10d"]
            for name in ("get_rank", "get_node_local_rank"):
                self._watch_in_place(getattr(distributed, name), name)
            when_imported("torch.distributed.device_mesh", self._watch_mesh)
        when_imported("torch.utils.data.distributed", lambda module: self._watch(module.DistributedSampler, "__init__"))

    def _watch_mesh(self, module: Any) -> None:
        for name in ("get_rank", "get_local_rank", "get_coordinate"):
            self._watch(module.DeviceMesh, name)

    def _watch_variables(self) -> None:
        environ: Any = os._Environ
        read = environ.__getitem__

        def watched(variables: Any, key: Any) -> Any:
            if key in _VARIABLES:
                self._note(sys._getframe().f_back, key)
            return read(variables, key)

        environ.__getitem__ = watched

    def _watch(self, owner: Any, name: str) -> None:
        call = getattr(owner, name)
        what = owner.__name__ if name == "__init__" else name

        @functools.wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._note(sys._getframe().f_back, what)
            return call(*args, **kwargs)

        setattr(owner, name, watched)

    def _watch_in_place(self, function: Any, name: str) -> None:
        """Patch a function but keep the object: torch.compile compares it, and others have imported it by name."""
        own = types.FunctionType(function.__code__, function.__globals__, name, function.__defaults__)

        def watched(*args: Any, **kwargs: Any) -> Any:
            forwarding = sys._getframe().f_back
            self._note(forwarding.f_back if forwarding else None, name)  # None if C++ calls it
            return own(*args, **kwargs)

        hidden = f"_presim_{name}"
        function.__globals__[hidden] = watched
        function.__code__ = _forwarding(hidden)
        function.__defaults__ = None

    def _note(self, frame: FrameType | None, what: str) -> None:
        while frame is not None and frame.f_code.co_filename.startswith("<frozen"):
            if frame.f_code.co_name in ("__iter__", "copy"):
                return  # iteration over all variables
            frame = frame.f_back  # `os.getenv`, `os.environ.get`
        if frame is None or (frame.f_code, frame.f_lineno, what) in self._seen:
            return
        self._seen.add((frame.f_code, frame.f_lineno, what))
        file = frame.f_code.co_filename
        if _is_ignored(file) or len(self.places) >= _MAX_PLACES:
            return
        place = f"{file}:{frame.f_lineno}" if is_own(file) else file.removeprefix(_SITE).split("/")[0]
        self.places[f"{place} ({what})"] = None


def _is_ignored(file: str) -> bool:
    """Whether the file belongs to PyTorch, presim or Python itself."""
    return file.startswith((_TORCH, PRESIM_DIR, "<frozen")) or (file.startswith(_STDLIB) and not file.startswith(_SITE))


def _forwarding(name: str) -> types.CodeType:
    """Code of a function that forwards its arguments to a global of its module."""
    space: dict[str, Any] = {}
    exec(f"def forward(*args, **kwargs):\n    return {name}(*args, **kwargs)", space)
    code: types.CodeType = space["forward"].__code__
    return code
