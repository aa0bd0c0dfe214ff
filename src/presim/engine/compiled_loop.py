"""Compiles the engine's loop to machine code, from the same source that runs uncompiled (`presim.system`).

`presim.engine.loop` does not import numba, so importing the engine stays fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.engine import event_heap, hosts, links, loop, pace, slowdown, state, streams
from presim.system.compiled_loops import compile_for_pointers, has_machine_code

_MODULES = (state, event_heap, hosts, pace, links, slowdown, streams, loop)


@functools.cache
def compiled_run() -> Callable[[loop.Program, loop.LoopState], None]:
    """`loop.run` for columns that are contiguous, writable int64 arrays."""
    return compile_for_pointers(_MODULES, loop.run, _empty(loop.Program), _empty(loop.LoopState))


@functools.cache
def is_on_disk() -> bool:
    """Whether the compiled loop can be loaded, as this process first saw it."""
    return has_machine_code(_MODULES) is True


def _empty(record: Any) -> Any:
    return record(*[np.zeros(0, np.int64)] * len(record._fields))
