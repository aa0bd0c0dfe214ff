"""Record where code outside PyTorch reads its rank, and whether more than the choice of a device depends on it.

`rank_sources` lists what is watched. Reads by PyTorch, presim and Python itself do not count; Python's own functions
read on behalf of their caller.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable
from types import CodeType, FrameType

from presim.capture.script import rank_sources
from presim.capture.script.current_line import PRESIM_DIR, is_own, is_python, is_torch
from presim.capture.script.device_indices import index_lines, may_use_index
from presim.capture.script.expressions import current_expression, source_of
from presim.capture.script.package_folders import without_package_folder
from presim.capture.script.real_clock import now_ns
from presim.capture.script.value_uses import is_confined, tells_only_zero
from presim.trace.coverage import CONFINED, ZERO_ONLY

_PRESIM = PRESIM_DIR.removesuffix("capture")
_MAX_PLACES = 64  # places kept
# Libraries log host names, copy the environment and start compilers; only the program's own files count for these.
_OF_PROGRAM = (rank_sources.ENVIRONMENT, rank_sources.HOST_NAME, rank_sources.SUBPROCESS)
_OF_WORLD = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "get_rank")
_NEVER_CONFINED = (rank_sources.ENVIRONMENT, rank_sources.SUBPROCESS, "DistributedSampler", "new_group")


class RankReads:
    """The places in this process that read the rank.

    ``script``: path of the program; ``local_rank``: the option in which a launcher passes the local rank, if it does;
    ``add_own_time`` gets the nanoseconds spent on reading sources.
    """

    def __init__(
        self,
        script: str = "",
        local_rank: str = "",
        add_own_time: Callable[[int], object] = lambda duration_ns: None,
    ) -> None:
        # In order: ``train.py:12 (RANK)``, or ``package (RANK)`` for a library. `CONFINED` follows the name of what is
        # read if only the choice of a device depends on it, `ZERO_ONLY` if it only tells rank 0 from the others.
        self.places: dict[str, None] = {}
        self._script = script
        self._arguments = [local_rank.lstrip("-").replace("-", "_")] if local_rank else []
        self._add_own_time = add_own_time
        self._seen: set[tuple[int, int, str]] = set()  # instructions that have read: id of the code, offset, and what
        self._codes: list[CodeType] = []  # keeps these ids from being used again

    def install(self) -> None:
        """Install before the script runs."""
        rank_sources.watch(self._note)

    def all_places(self) -> tuple[str, ...]:
        """All places of the program so far, with the lines of its files that use the index of a device."""
        # A module's namespace, because lazy modules import when they are asked for an attribute.
        namespaces = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
        files = {str(names.get("__file__")) for names in namespaces}
        for file in sorted(file for file in {*files, self._script} if file.endswith(".py") and _is_program(file)):
            text = "".join(linecache.getlines(file))
            source = source_of(file) if may_use_index(text, self._arguments) else None
            for line, read_name in index_lines(source, self._arguments).items() if source else ():
                self.places[f"{file}:{line} ({read_name})"] = None
        return tuple(self.places)

    def _note(self, frame: FrameType | None, read_name: str) -> None:
        if frame is None or (key := (id(frame.f_code), frame.f_lasti, read_name)) in self._seen:
            return  # meshes are asked thousands of times in a step; hashing the code itself takes microseconds
        self._seen.add(key)
        self._codes.append(frame.f_code)
        start_ns = now_ns()
        reader = _reader(frame)
        if reader is not None and len(self.places) < _MAX_PLACES and (location := _describe(reader, read_name)):
            self.places[location] = None
        self._add_own_time(now_ns() - start_ns)


def _is_program(file: str) -> bool:
    """Whether a file belongs to the program, wherever presim is installed."""
    return is_own(file) and not file.startswith(_PRESIM)


def _describe(frame: FrameType, read_name: str) -> str:
    """A place as `RankReads.places` has it; empty if it does not count."""
    file = frame.f_code.co_filename
    if rank_sources.is_environment_copy(frame):
        read_name = rank_sources.ENVIRONMENT
    if not is_own(file):
        package = without_package_folder(file).split("/")[0]
        return "" if read_name in _OF_PROGRAM else f"{package} ({read_name}{_confined_suffix(frame, read_name)})"
    return f"{file}:{frame.f_lineno} ({read_name}{_confined_suffix(frame, read_name)})"


def _confined_suffix(frame: FrameType, read_name: str) -> str:
    """What follows the name of what is read, by what depends on it."""
    if read_name in _NEVER_CONFINED:
        return ""
    if is_confined(frame):
        return CONFINED
    return ZERO_ONLY if read_name in _OF_WORLD and _is_of_world(frame, read_name) and tells_only_zero(frame) else ""


def _is_of_world(frame: FrameType, read_name: str) -> bool:
    """Whether a frame reads its rank among all ranks, not within a group that it names."""
    current = current_expression(frame)
    if read_name != "get_rank":
        return True
    return current is not None and isinstance(current[1], ast.Call) and not (current[1].args or current[1].keywords)


def _reader(frame: FrameType | None) -> FrameType | None:
    """The frame of the program for which a frame reads; None if it is PyTorch's or presim's."""
    while frame is not None and is_python(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None or is_torch(frame.f_code.co_filename) else frame
