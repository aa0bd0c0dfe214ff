"""Record which branches of the program's own files depend on the time of day, within loops.

Without ``--live`` such a program sees this machine's clock, so it does not do what it would do on the cluster.
Python's `datetime` cannot be patched: its reads are found in the source alone.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import threading
import time
import timeit
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from presim.capture.script.current_line import is_own
from presim.capture.script.expressions import ScriptSource, source_of
from presim.capture.script.real_clock import now_ns
from presim.capture.script.time_decisions import deciding_line, deciding_line_in
from presim.capture.steps.positions import is_in_loop

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
_DATES = frozenset(("now", "utcnow", "today"))
_DATE_CALL = re.compile(r"\.(now|utcnow|today)\(")
LIVE = "PRESIM_LIVE"  # the variable with which a live clock is simulated: shim/core/live.h
_MOST_NAMED = 3  # in the sentence


class _Clock:
    """In a clock's place. Not a function, because as an attribute of a class that would become a method."""

    def __init__(self, name: str, note: Callable[[FrameType], None]) -> None:
        self._name, self._read, self._note = name, getattr(time, name), note

    def __call__(self) -> Any:
        self._note(sys._getframe(1))
        return self._read()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _clock, (self._name,)


def _clock(name: str) -> Any:
    return getattr(time, name)


class ClockReads:
    """The lines of this process at which the time of day decides.

    ``script``: path of the program; ``add_own_time`` gets the nanoseconds spent on reading sources.
    """

    def __init__(self, script: str, add_own_time: Callable[[int], object] = lambda duration_ns: None) -> None:
        self._script, self._add_own_time = script, add_own_time
        self._lines: dict[str, None] = {}  # in order
        self._seen: set[tuple[int, int]] = set()  # instructions in loops that have read: id of the code, offset
        self._codes: list[CodeType] = []  # keeps these ids from being used again
        self._thread = threading.get_ident()
        self._is_simulated = LIVE in os.environ

    def install(self) -> None:
        """Install before the script runs."""
        if self._is_simulated:
            return
        for name in _CLOCKS:
            setattr(time, name, _Clock(name, self._note))
        timeit.default_timer = time.perf_counter

    def notes(self) -> list[str]:
        """A sentence with the branches that the time of day decides, if it is this machine's."""
        lines = [] if self._is_simulated else self.deciding_lines()
        if not lines:
            return []
        suffix = f" and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
        return [
            f"The script decides by the time of day at {', '.join(lines[:_MOST_NAMED])}{suffix}. It saw this machine's "
            "clock, so it may do something else on the cluster; --live shows it the cluster's clock."
        ]

    def deciding_lines(self) -> list[str]:
        """``file.py:12`` of the branches that were seen."""
        # A module's namespace, because lazy modules import when they are asked for an attribute.
        namespaces = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
        files = {self._script, *(str(names.get("__file__")) for names in namespaces)}
        for file in sorted(file for file in files if file.endswith(".py") and is_own(file)):
            has_dates = _DATE_CALL.search("".join(linecache.getlines(file)))  # parsing takes a hundred times as long
            source = source_of(file) if has_dates else None
            self._lines |= dict.fromkeys(_dated_lines(source, file)) if source else {}
        return list(self._lines)

    def _note(self, frame: FrameType) -> None:
        code = frame.f_code
        if (id(code), frame.f_lasti) in self._seen or threading.get_ident() != self._thread:
            return
        start_ns = now_ns()
        is_examined = is_own(code.co_filename) and is_in_loop(frame)
        if is_examined or not is_own(code.co_filename):
            self._seen.add((id(code), frame.f_lasti))
            self._codes.append(code)
        if is_examined and (line := deciding_line(frame)):
            self._lines[line] = None
        self._add_own_time(now_ns() - start_ns)


def _dated_lines(source: ScriptSource, file: str) -> list[str]:
    """Branches that dates decide which loops of a file ask for."""
    calls = [node for node in source.by_position.values() if isinstance(node, ast.Call) and _is_date(node)]
    return [line for call in calls if _is_in_loop(source, call) and (line := deciding_line_in(source, file, call))]


def _is_date(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _DATES:
        return False
    return ast.unparse(function.value).rpartition(".")[2] in ("datetime", "date", "dt")


def _is_in_loop(source: ScriptSource, node: ast.AST) -> bool:
    while node in source.parents:
        node = source.parents[node]
        if isinstance(node, ast.For | ast.While):
            return True
    return False
