"""Compiles a loop of plain Python over arrays with numba, from the same source that runs uncompiled.

The loop's modules do not import numba. The first call makes a second, compiled set of their functions. The machine code
is cached on disk: beside the source, else in the user's cache folder, else not at all; NUMBA_CACHE_DIR overrides both.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any


def compile_loop(
    modules: Sequence[types.ModuleType], run: Callable[..., Any], arguments: Sequence[Any]
) -> Callable[..., Any]:
    """``run`` in machine code. ``modules``: all that it uses, each after those that it uses itself.

    ``arguments``: records of empty arrays, and numbers, from which the types are taken; real ones are
    contiguous and writable.
    """
    import numba

    njit: Any = numba.njit  # its annotations leave out some of its options
    namespace: dict[str, Any] = {name: value for module in modules for name, value in vars(module).items()}
    # Measured on 790,000 ops of the engine, and for the first compilation:
    # as it is                                                             0.79 s, 8.3 s
    # without wrappers that only Python would call                         0.79 s, 3.6 s
    # _nrt=False: no counting of references to 45 arrays at every call     0.076 s, 2.6 s (the loops allocate nothing)
    # forceinline                                                          0.031 s, 2.5 s
    inner = njit(forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    for name, function in list(namespace.items()):
        if isinstance(function, types.FunctionType):
            namespace[name] = inner(types.FunctionType(function.__code__, namespace, name))
    entry = types.FunctionType(run.__code__, namespace, "run")
    entry.__module__ = run.__module__
    # numba's cache looks at the entry's own file alone; this name changes with any of them.
    entry.__qualname__ = f"run_{_fingerprint(modules)}"
    try:
        made = njit(_nrt=False, cache=True)(entry)
        made.compile(tuple(map(numba.typeof, arguments)))  # or loaded
    except (RuntimeError, OSError):  # no folder that numba may write to, or a full one
        made = njit(_nrt=False)(entry)
    compiled: Callable[..., Any] = made
    return compiled


def _fingerprint(modules: Sequence[types.ModuleType]) -> str:
    """What tells one state of the loop's sources from another."""
    sources = [inspect.getsource(module) for module in (*modules, sys.modules[__name__])]
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:16]
