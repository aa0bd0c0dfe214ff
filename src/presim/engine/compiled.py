"""The loop in machine code, made by numba from the same source that runs uncompiled.

`presim.engine.loop` stays plain Python and free of numba, so importing the engine costs nothing; a second set of its
functions, whose globals are the compiled ones, is made here when it is first asked for. The code is cached on disk
(beside the source, else in the user's cache folder, else not at all; NUMBA_CACHE_DIR overrides both).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from presim.engine import heap, hosts, loop, slowdown, state, streams

_MODULES = (state, heap, hosts, slowdown, streams, loop)


@functools.cache
def compiled_run() -> Callable[[loop.Program, loop.State], None]:
    """`loop.run` for columns that are contiguous, writable int64 arrays."""
    import numba

    njit: Any = numba.njit  # its annotations leave out some of its options
    namespace: dict[str, Any] = {name: value for module in _MODULES for name, value in vars(module).items()}
    # Measured on 790,000 ops, and for the first compilation:              0.79 s, 8.3 s
    # without wrappers that only Python would call                         0.79 s, 3.6 s
    # _nrt=False: no counting of references to 45 arrays at every call     0.076 s, 2.6 s (the loop allocates nothing)
    # forceinline                                                          0.031 s, 2.5 s
    inner = njit(forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    for name, function in list(namespace.items()):
        if isinstance(function, types.FunctionType):
            namespace[name] = inner(types.FunctionType(function.__code__, namespace, name))
    entry = types.FunctionType(loop.run.__code__, namespace, "run")
    entry.__module__ = loop.__name__
    # numba's cache looks at the entry's own file alone; this name changes with any of them.
    entry.__qualname__ = f"run_{_fingerprint()}"
    signature = tuple(_typed(numba, type_) for type_ in (loop.Program, loop.State))
    try:
        run = njit(_nrt=False, cache=True)(entry)
        run.compile(signature)  # or loaded
    except (RuntimeError, OSError):  # no folder that numba may write to, or a full one
        run = njit(_nrt=False)(entry)
    return cast(Callable[[loop.Program, loop.State], None], run)


def _fingerprint() -> str:
    """What tells one state of the loop's sources from another."""
    sources = [inspect.getsource(module) for module in (*_MODULES, inspect.getmodule(_fingerprint)) if module]
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:16]


def _typed(numba: Any, record: Any) -> Any:
    return numba.typeof(record(*[np.zeros(0, np.int64)] * len(record._fields)))
