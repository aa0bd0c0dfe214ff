"""Compiles the engine's loop to machine code, from the same source that runs uncompiled (`presim.system`).

`presim.engine.loop` does not import numba, so importing the engine stays fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.engine import event_heap, hosts, links, loop, pace, slowdown, state, streams
from presim.system.compiled_loops import compile_loop

_MODULES = (state, event_heap, hosts, pace, links, slowdown, streams, loop)


@functools.cache
def compiled_run() -> Callable[[loop.Program, loop.LoopState], None]:
    """`loop.run` for columns that are contiguous, writable int64 arrays."""
    return compile_loop(_MODULES, loop.run, [_empty(type_) for type_ in (loop.Program, loop.LoopState)])


def _empty(record: Any) -> Any:
    return record(*[np.zeros(0, np.int64)] * len(record._fields))
