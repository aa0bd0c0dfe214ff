"""Compiles a loop of plain Python over arrays with numba, from the same source that runs uncompiled.

The loop's modules do not import numba. The first call makes a second, compiled set of their functions. The machine code
is kept on disk: beside the source, else in the user's cache folder, else not at all; NUMBA_CACHE_DIR overrides both. A
wheel has machine code for most CPUs (`presim.system.machine_code`).
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from presim.system.machine_code import NativeLoop, StoredLoop

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


def compile_for_pointers(
    modules: Sequence[types.ModuleType], run: Callable[..., Any], program: Any, state: Any
) -> Callable[..., Any]:
    """``run`` of two records of flat columns in machine code that gets only the columns' addresses.

    ``modules``: all that ``run`` uses, in the order of their imports. ``program``, ``state``: records of empty columns
    that give the types; columns of calls are contiguous and writable. Kept code is loaded without numba
    (`presim.system.machine_code`). A call passes each column on as one number and not as the seven of an array: with
    the 115 columns of `presim.serving.fast`, the first compilation took 28 s of CPU time instead of 71, and a step 2.4
    us instead of 3.2, on a busy machine. The source takes no length of a column, and no negative index.
    """
    stored = stored_loop(modules)
    native = stored.load() or _compiled_once(stored, modules, run, program, state)

    def call(program_columns: Any, state_columns: Any) -> Any:
        addresses = _addresses(program_columns, program), _addresses(state_columns, state)
        return native(*(column.__array_interface__["data"][0] for column in addresses))

    return call


def _compiled_once(
    stored: StoredLoop, modules: Sequence[types.ModuleType], run: Callable[..., Any], program: Any, state: Any
) -> NativeLoop:
    """Machine code that is made now and kept, unless another process is making it: then what that one makes."""
    from presim.system.machine_code import load_object

    name = run.__module__
    with stored.locked(lambda: announce(f"waiting for another process that compiles {name} for this CPU")):
        if native := stored.load():
            return native
        with _announced(name):
            symbol, code = _object_code(modules, run, program, state)
        stored.keep(symbol, code)
    return load_object(symbol, code)


def _object_code(
    modules: Sequence[types.ModuleType], run: Callable[..., Any], program: Any, state: Any
) -> tuple[str, bytes]:
    """The name of ``run`` of two arrays of column addresses, and its object code for this CPU."""
    import numba

    namespace = _compiled_functions(modules)
    namespace["run"] = namespace[run.__name__]
    namespace["as_program"], namespace["as_state"] = _columns_at(program), _columns_at(state)
    entry = types.FunctionType(_run_at.__code__, namespace, "run")
    entry.__module__ = run.__module__
    njit, kinds = cast(Any, numba.njit), cast(Any, numba.types)
    function = njit(_nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)(entry)
    addresses = kinds.CPointer(numba.int64)
    function.compile((addresses, addresses))
    (compiled,) = function.overloads.values()
    library = compiled.library
    return compiled.fndesc.llvm_func_name, library.codegen._tm.emit_object(library._final_module)


def has_machine_code(modules: Sequence[types.ModuleType]) -> bool | None:
    """Whether machine code of a loop that `compile_for_pointers` makes is on disk; None where none can be kept."""
    stored = stored_loop(modules)
    if stored.path() is not None:
        return True
    return None if stored.folder() is None else False


def stored_loop(modules: Sequence[types.ModuleType]) -> StoredLoop:
    """Where the machine code of a loop of these modules is kept."""
    from presim.system.machine_code import StoredLoop

    return StoredLoop(_entry_name(modules), Path(str(modules[-1].__file__)))


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
            indices = [context.get_constant(kinds.intp, index) for index in range(len(pointers))]
            values = [
                builder.inttoptr(builder.load(builder.gep(arguments[0], [index])), context.get_value_type(pointer))
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


def _entry_name(modules: Sequence[types.ModuleType]) -> str:
    """``run_`` and a digest of the loop's sources."""
    makers = Path(__file__), Path(__file__).with_name("machine_code.py")
    sources = b"".join(path.read_bytes() for path in (*(Path(str(module.__file__)) for module in modules), *makers))
    return f"run_{hashlib.sha256(sources).hexdigest()[:16]}"
