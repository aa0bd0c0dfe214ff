"""Where in the loops of the script a moment lies, read from the frames of the Python code that runs.

A frame whose instruction lies before that of the last moment has jumped back: the innermost loop that contains both
instructions has begun another iteration. A frame is recognised by a mark in its ``f_trace``, because frames cannot be
referred to weakly and a reference would keep the tensors of its variables alive. Without a trace function, Python does
not use ``f_trace``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
import threading
from types import CodeType, FrameType
from typing import Any

from presim.capture.script.current_line import PRESIM_DIR, is_python, is_torch
from presim.capture.steps.code_loops import CodeLoop, loops_around

# Its loops over hooks, which tell of a call of a model, are not the script's.
_MODULES = "/torch/nn/modules/module.py"


@dataclasses.dataclass(frozen=True)
class Position:
    """A moment in the loops of the script."""

    nest: tuple[str, ...]  # keys of the loops that it lies in, the outermost first
    changed: int  # level of the outermost loop that differs from the last moment's; len(nest): none
    is_entered: bool = False  # that loop has been entered, else it has begun another iteration
    # ``file.py:12``: the line that runs in the frame of the innermost loop outside PyTorch, else in the outermost frame
    line: str = dataclasses.field(default="", compare=False)


_Level = tuple[str, int, int]  # of one loop: key, serial of its execution, iteration


class _FrameMark:
    """What is known of one frame: its instruction and the loops around it at the last moment."""

    def __init__(self) -> None:
        self.offset = -1
        self.callees: list[object] = []  # frames called, or things done, by this instruction in this iteration
        self.levels: list[tuple[CodeLoop, int, int]] = []  # loop, serial of its execution, iteration

    def has_called(self, callee: object) -> bool:
        """Whether the instruction must have been executed again to call this frame or to do this thing."""
        if isinstance(callee, _FrameMark):
            return callee is not self.callees[-1]
        return callee in self.callees

    def __call__(self, *event: Any) -> None:
        """Trace nothing, should a debugger begin to trace this frame."""


class LoopPositions:
    """Follows the position of one thread: of the first that asks, until it has ended."""

    def __init__(self) -> None:
        self._levels: list[_Level] = []  # of the last moment
        self._serials = itertools.count()
        self._thread = 0

    def last(self) -> Position:
        """The position of the last moment."""
        return Position(tuple(key for key, _, _ in self._levels), len(self._levels))

    def now(self, token: object = None) -> Position:
        """The caller's position. Other threads than the first are taken to be where that was last.

        ``token``: what is done there. An instruction that does two things, such as reading from two loaders, is in one
        iteration; one that does the same thing again is in the next.
        """
        thread_id = threading.get_ident()
        if self._thread != thread_id and any(thread.ident == self._thread for thread in threading.enumerate()):
            return self.last()
        self._thread = thread_id
        levels, line = self._current_levels(token)
        changed = _first_difference(self._levels, levels)
        is_entered = changed >= len(self._levels) or self._levels[changed][:2] != (*levels, ("", -1))[changed][:2]
        self._levels = levels
        return Position(tuple(key for key, _, _ in levels), changed, is_entered, line)

    def _current_levels(self, token: object) -> tuple[list[_Level], str]:
        """The loops around the caller, and `Position.line`."""
        frames = _script_frames(sys._getframe(2))
        marks = [_mark_of(frame) for frame in frames]
        levels: list[_Level] = []
        looping = frames[0] if frames else None
        for frame, mark, child in zip(frames, marks, (*marks[1:], None)):
            self._update(mark, frame.f_code, frame.f_lasti, child or token)
            if frame is not frames[-1] or not frame.f_code.co_filename.endswith(_MODULES):
                levels += [(loop.key, serial, iteration) for loop, serial, iteration in mark.levels]
            looping = frame if mark.levels and not is_torch(frame.f_code.co_filename) else looping
        return levels, f"{looping.f_code.co_filename}:{looping.f_lineno}" if looping else ""

    def _update(self, mark: _FrameMark, code: CodeType, offset: int, callee: object) -> None:
        """Move a frame's mark to its present instruction, which calls another frame or does something itself."""
        before = mark.levels
        is_repeated = 0 <= offset < mark.offset or (offset == mark.offset and mark.has_called(callee))
        loops = loops_around(code, offset)
        if not loops and offset == mark.offset and (is_repeated or before):
            loops = (CodeLoop(f"{code.co_filename}:{_line(code, offset)}", offset, offset),)  # a loop outside Python
        common = [loop for loop, (old, _, _) in zip(loops, before) if loop == old]
        advanced = len(common) - 1 if is_repeated else -1  # the innermost loop around both instructions
        mark.levels = [
            (loop, *self._counters(before, level, level < len(common), advanced)) for level, loop in enumerate(loops)
        ]
        if is_repeated or offset != mark.offset:
            mark.callees.clear()
        mark.offset = offset
        mark.callees.append(callee)

    def _counters(
        self, before: list[tuple[CodeLoop, int, int]], level: int, is_common: bool, advanced: int
    ) -> tuple[int, int]:
        """Serial and iteration of the loop at a level."""
        if not is_common:
            return next(self._serials), 0
        _, serial, iteration = before[level]
        return serial, iteration + (level == advanced)


def _first_difference(before: list[_Level], levels: list[_Level]) -> int:
    """The first level at which two nests differ; the length of the second if it begins the first."""
    for level, (old, new) in enumerate(zip(before, levels)):
        if old != new:
            return level
    return min(len(before), len(levels))


def is_in_loop(frame: FrameType | None) -> bool:
    """Whether a frame runs in a loop of the script or its packages, in its own code or in that of its callers."""
    return any(loops_around(outer.f_code, outer.f_lasti) for outer in _script_frames(frame))


def _script_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames of the script and its packages, the outermost first."""
    frames = []
    while frame is not None:
        if not _is_ignored(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


@functools.cache
def _is_ignored(file: str) -> bool:
    """Whether a file is Python's or presim's: their loops (an event loop, a server) say nothing of the script's."""
    return file.startswith(PRESIM_DIR) or is_python(file)


def _mark_of(frame: FrameType) -> _FrameMark:
    mark = frame.f_trace
    if isinstance(mark, _FrameMark):
        return mark
    mark = _FrameMark()
    if sys.gettrace() is None:  # else a debugger uses it, and every moment seems to be in new frames
        frame.f_trace = mark
    return mark


def _line(code: CodeType, offset: int) -> int:
    return next((line or 0 for first, last, line in code.co_lines() if first <= offset < last), 0)
