"""The loop in machine code, made by numba from the same source that runs uncompiled (as `presim.engine.compiled`)."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from presim.serving.fast import cost, loop, output, policy, pool, routing, state

_MODULES = (state, pool, policy, output, cost, routing, loop)
FLOATS = frozenset(("token_ns", "head_ns", "prefill_log", "decode_log", "costs"))  # columns that are not int64


@functools.cache
def compiled_run() -> Callable[[state.Program, state.State], int]:
    """`loop.run` for contiguous, writable arrays."""
    import numba

    njit: Any = numba.njit  # its annotations leave out some of its options
    namespace: dict[str, Any] = {name: value for module in _MODULES for name, value in vars(module).items()}
    inner = njit(forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    for name, function in list(namespace.items()):
        if isinstance(function, types.FunctionType):
            namespace[name] = inner(types.FunctionType(function.__code__, namespace, name))
    entry = types.FunctionType(loop.run.__code__, namespace, "run")
    entry.__module__ = loop.__name__
    # numba's cache looks at the entry's own file alone; this name changes with any of them.
    entry.__qualname__ = f"run_{_fingerprint()}"
    signature = tuple(_typed(numba, type_) for type_ in (state.Program, state.State))
    try:
        run = njit(_nrt=False, cache=True)(entry)
        run.compile(signature)  # or loaded
    except (RuntimeError, OSError):  # no folder that numba may write to, or a full one
        run = njit(_nrt=False)(entry)
    return cast(Callable[[state.Program, state.State], int], run)


def _fingerprint() -> str:
    sources = [inspect.getsource(module) for module in (*_MODULES, inspect.getmodule(_fingerprint)) if module]
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:16]


def _typed(numba: Any, record: Any) -> Any:
    columns = (np.zeros(0, np.float64 if name in FLOATS else np.int64) for name in record._fields)
    return numba.typeof(record(*columns))
