"""Compiles a loop of plain Python over arrays with numba, from the same source that runs uncompiled.

The loop's modules do not import numba. The first call makes a second, compiled set of their functions. The machine code
is cached on disk: beside the source, else in the user's cache folder, else not at all; NUMBA_CACHE_DIR overrides both.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_LOADED_WITHIN_S = 1.5  # CPU time; loading kept machine code takes 0.1 to 0.5 s
_ASK_EVERY_S = 0.25
_announce: list[Callable[[str], None]] = []


def announce_with(function: Callable[[str], None]) -> None:
    """Call ``function`` with a sentence whenever a loop has to be compiled, which takes seconds."""
    _announce[:] = [function]


@contextlib.contextmanager
def _announced(loop: str) -> Iterator[None]:
    """Announce what takes longer than loading kept machine code does."""
    begin_s, has_ended = time.process_time(), threading.Event()
    text = (
        f"compiling {loop} for this CPU: seconds to a minute, once; `presim doctor --prepare` compiles all loops "
        "ahead of time"
    )

    def watch() -> None:
        while not has_ended.wait(_ASK_EVERY_S):
            if time.process_time() - begin_s > _LOADED_WITHIN_S:
                announce(text)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        has_ended.set()


def compile_loop(
    modules: Sequence[types.ModuleType], run: Callable[..., Any], arguments: Sequence[Any]
) -> Callable[..., Any]:
    """``run`` in machine code. ``modules``: all that it uses, in the order of their imports.

    ``arguments``: numbers and records of empty arrays that give the types; arrays of calls are contiguous and
    writable.
    """
    import numba

    namespace = _compiled_functions(modules)
    entry = types.FunctionType(run.__code__, namespace, "run")
    entry.__module__ = run.__module__
    with _announced(run.__module__):
        compiled: Callable[..., Any] = _compiled(entry, modules, tuple(map(numba.typeof, arguments)))
    return compiled


def compile_for_pointers(
    modules: Sequence[types.ModuleType], run: Callable[..., Any], program: Any, state: Any
) -> Callable[..., Any]:
    """``run`` of two records of flat columns in machine code that gets only the columns' addresses.

    Compiles sooner than `compile_loop` where records have many columns, because a call passes each on as one number and
    not as the seven of an array. With the 115 columns of `presim.serving.fast`, the first compilation took 28 s of CPU
    time instead of 71, and a step 2.4 us instead of 3.2, on a busy machine. The source takes no length of a column.
    """
    import numba

    namespace = _compiled_functions(modules)
    namespace["run"] = namespace[run.__name__]
    namespace["as_program"], namespace["as_state"] = _columns_at(program), _columns_at(state)
    entry = types.FunctionType(_run_at.__code__, namespace, "run")
    entry.__module__ = run.__module__
    addresses = numba.int64[::1]
    with _announced(run.__module__):
        machine_code = _compiled(entry, modules, (addresses, addresses))

    def call(program_columns: Any, state_columns: Any) -> Any:
        return machine_code(_addresses(program_columns, program), _addresses(state_columns, state))

    return call


def has_machine_code(modules: Sequence[types.ModuleType]) -> bool | None:
    """Whether machine code of a loop that `compile_for_pointers` makes is on disk; None where none can be kept."""
    import numba

    njit: Any = numba.njit
    name = _entry_name(modules)
    entry = types.FunctionType(_run_at.__code__, {}, "run")
    entry.__qualname__ = name
    try:
        folder = pathlib.Path(njit(cache=True)(entry).stats.cache_path)
    except (RuntimeError, OSError):
        return None
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return any(folder.glob(f"*.{name}-*.{python}*.nbi"))


in_background: list[subprocess.Popen[bytes]] = []  # processes that compile a loop beside this one


def end_background() -> None:
    """End the processes of `in_background`: an interrupted verb leaves none behind."""
    for compilation in in_background:
        compilation.kill()
        compilation.wait()
    in_background.clear()


def announce(text: str) -> None:
    """Say a sentence to whom `announce_with` names."""
    for function in _announce:
        function(text)


def _run_at(program: Any, state: Any) -> Any:
    return run(as_program(program), as_state(state))  # type: ignore[name-defined]  # noqa: F821  # put there


def _addresses(record: Any, compiled_record: Any) -> Any:
    """The address of each column [column]; raises TypeError if its type differs from the compiled one."""
    import numpy as np

    for name, column, compiled_column in zip(record._fields, record, compiled_record):
        if column.dtype != compiled_column.dtype or not (column.flags.c_contiguous and column.flags.writeable):
            raise TypeError(f"column {name} is no contiguous, writable array of {compiled_column.dtype}")
    return np.array([column.__array_interface__["data"][0] for column in record], np.int64)


def _columns_at(record: Any) -> Any:
    """An intrinsic that makes a record of pointers from an array of addresses."""
    import numba

    kinds: Any = numba.types
    pointers = [kinds.CPointer(numba.from_dtype(column.dtype)) for column in record]
    returned = kinds.BaseTuple.from_types(pointers, type(record))

    def columns_at(typing: Any, addresses: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            indices = [context.get_constant(kinds.intp, index) for index in range(len(pointers))]
            values = [
                builder.inttoptr(builder.load(builder.gep(array.data, [index])), context.get_value_type(pointer))
                for index, pointer in zip(indices, pointers)
            ]
            return context.make_tuple(builder, returned, values)

        return returned(addresses), generate

    return numba.extending.intrinsic(columns_at)


def _compiled_functions(modules: Sequence[types.ModuleType]) -> dict[str, Any]:
    """All names of the modules, with their functions compiled by numba."""
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
    return namespace


def _compiled(entry: types.FunctionType, modules: Sequence[types.ModuleType], signature: tuple[Any, ...]) -> Any:
    """The entry in machine code, kept on disk."""
    import numba

    njit: Any = numba.njit
    # numba's cache looks at the entry's own file alone; this name changes with any of them.
    entry.__qualname__ = _entry_name(modules)
    try:
        machine_code = njit(_nrt=False, cache=True)(entry)
        machine_code.compile(signature)  # or loaded
    except (RuntimeError, OSError):  # no folder that numba may write to, or a full one
        machine_code = njit(_nrt=False)(entry)
    return machine_code


def _entry_name(modules: Sequence[types.ModuleType]) -> str:
    """``run_`` and a digest of the loop's sources."""
    import inspect

    sources = [inspect.getsource(module) for module in (*modules, sys.modules[__name__])]
    return f"run_{hashlib.sha256(''.join(sources).encode()).hexdigest()[:16]}"
