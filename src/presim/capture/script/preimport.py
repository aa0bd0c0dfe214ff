"""Import a script's modules before a rank runs it, so that forks share them (see `presim.capture.zygote`).

A recipe (a script of ``presim validate``) runs to the end of its top level under a name other than ``__main__``: its
imports and whatever prepares them, such as stand-in modules and variables. Then the script and the files beside it are
removed from ``sys.modules``, and each fork runs them anew. Such scripts keep their work behind ``__name__ ==
"__main__"``; no other script runs here.

For any other script, only the imports at its beginning are executed (`import_leading`): installed packages imported
before every other statement, which are the same in each rank. `RankRead` is raised if a package reads the rank during
its import.

Nothing may use the device here, because it belongs to a rank: queries for its properties bypass PyTorch, and anything
that would initialise it raises.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import importlib
import importlib.machinery
import importlib.util
import os
import re
import runpy
import sys
import types
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

from presim.capture.script.package_folders import PACKAGE_FOLDERS

_RUN_NAME = "presim_preimport"  # instead of __main__
_COMPILER = (
    "torch._inductor.compile_fx"  # imported by PyTorch at the first compilation: 0.9 s of CPU, else in every rank
)
_COMPILES = re.compile(r"\btorch\.compile\b|(?<!\bre)\.compile\(|\btorch\._(?:dynamo|inductor)\b")  # in a script's text
_ATTRIBUTES = {"major": 75, "minor": 76, "multi_processor_count": 16}  # cudaDeviceAttr


def preimport(script: Path) -> None:
    """Run the top level of the script, after importing torch; raises whatever the script raises."""
    script = script.resolve()  # its functions refer to the path that was run: `_comes_from`
    folder, arguments = str(script.parent), sys.argv
    sys.path.insert(0, folder)
    sys.argv = [str(script)]
    try:
        with _device_unused():
            runpy.run_path(str(script), run_name=_RUN_NAME)
    finally:
        sys.argv = arguments
        sys.path.remove(folder)
    for name, module in list(sys.modules.items()):
        if _comes_from(folder, module):
            del sys.modules[name]
    _hash_compilers()


class RankRead(Exception):
    """A package read a variable that differs between ranks."""


def import_leading(script: str, rank_variables: Collection[str], *, is_module: bool) -> None:
    """Execute the imports at the beginning of a script, after importing torch; raises whatever they raise.

    ``rank_variables``: variables that differ between ranks.

    Raises:
        RankRead: an import depends on the rank.
    """
    path = _source_of(script) if is_module else Path(script)
    source = path.read_text() if path else ""
    with _device_unused(), _refuse_reads(rank_variables):
        for name, parts in leading_imports(source):
            if not _is_installed(name):
                break  # a file of the user's, which may do anything
            __import__(name, fromlist=parts)
        if _COMPILES.search(source):
            importlib.import_module(_COMPILER)
    _hash_compilers()


def import_dynamo() -> None:
    """Import what PyTorch imports where the first optimizer is made: a second of CPU, else in every rank."""
    with _device_unused():
        importlib.import_module("torch._dynamo")


def leading_imports(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """The modules that a script imports before any other statement, in order, each with the names imported from it."""
    imports: list[tuple[str, tuple[str, ...]]] = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            imports += [(alias.name, ()) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            imports.append((statement.module, tuple(alias.name for alias in statement.names)))
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            break
    return [(name, parts) for name, parts in imports if name != "__future__"]


def _source_of(module: str) -> Path | None:
    """The file that ``python -m MODULE`` would run, for an installed package; imports its parent packages."""
    if not _is_installed(module):
        return None
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
    return Path(spec.origin) if spec is not None and spec.origin else None


def _is_installed(name: str) -> bool:
    """Whether a module belongs to Python or an installed package, not to the script's or the working directory."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.modules:
        return True
    return importlib.machinery.PathFinder.find_spec(top, list(PACKAGE_FOLDERS)) is not None


@contextlib.contextmanager
def _refuse_reads(names: Collection[str]) -> Iterator[None]:
    """Raise at the end of the block if one of these variables was read."""
    environ: Any = os._Environ
    read, reads = environ.__getitem__, set[str]()

    def watched(variables: Any, key: Any) -> Any:
        if key in names:
            reads.add(key)
        return read(variables, key)

    environ.__getitem__ = watched
    try:
        yield
    finally:
        environ.__getitem__ = read
    if reads:
        raise RankRead(", ".join(sorted(reads)))


def _hash_compilers() -> None:
    """Hash PyTorch's and Triton's files as inductor would at its first compilation: 0.35 s of CPU."""
    code: Any = sys.modules.get("torch._inductor.codecache")
    for name in ("torch_key", "triton_key"):  # cached for the process; they are only hashes
        if hasattr(code, name):
            getattr(code, name)()


def _comes_from(folder: str, module: types.ModuleType) -> bool:
    """Whether a module is a file in the folder or was created by one.

    A stand-in has no spec, but its functions have the globals of their file.
    """
    namespaces = [vars(module)]
    if vars(module).get("__spec__") is None:
        namespaces += [value.__globals__ for value in vars(module).values() if isinstance(value, types.FunctionType)]
    return any(str(Path(str(namespace.get("__file__"))).parent) == folder for namespace in namespaces)


@contextlib.contextmanager
def _device_unused() -> Iterator[None]:
    """Answer queries for the device's properties and refuse its use, so that PyTorch does not initialise it."""
    torch: Any = sys.modules["torch"]
    answers: dict[str, Callable[..., Any]] = {
        "_lazy_init": _refuse,
        "current_device": lambda: 0,
        "get_device_properties": _properties,
    }
    with _functions_replaced(torch.cuda, answers), _functions_replaced(torch._C, {"_cuda_getDeviceCount": _count}):
        yield
    interface: Any = sys.modules.get("torch._dynamo.device_interface")
    if interface is not None:
        interface.caching_worker_device_properties.clear()  # they were our answers


@contextlib.contextmanager
def _functions_replaced(module: Any, answers: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Replace functions within the block. Modules that copied one meanwhile call PyTorch's own afterwards."""
    before = {name: getattr(module, name) for name in answers}
    active_answers = dict(answers)
    vars(module).update({name: _answer_or_original(active_answers, name, before[name]) for name in answers})
    try:
        yield
    finally:
        active_answers.clear()
        vars(module).update(before)


def _answer_or_original(
    answer_by_name: dict[str, Callable[..., Any]], name: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return answer_by_name.get(name, original)(*args, **kwargs)

    return call


def _refuse() -> NoReturn:
    raise RuntimeError("a module uses the device while it is imported")


def _count() -> int:
    """Like PyTorch's own, which would mark this process as unfit for forking."""
    return _query("cudaGetDeviceCount")


def _properties(device: Any = None) -> types.SimpleNamespace:
    """The properties that modules read during import; any other attribute raises AttributeError."""
    attributes = {name: _query("cudaDeviceGetAttribute", number, 0) for name, number in _ATTRIBUTES.items()}
    return types.SimpleNamespace(**attributes)


def _query(function: str, *arguments: int) -> int:
    value = ctypes.c_int()
    if getattr(ctypes.CDLL("libcudart.so.13"), function)(ctypes.byref(value), *arguments) != 0:
        _refuse()
    return value.value
