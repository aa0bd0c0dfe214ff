"""Import what a script imports before a rank runs it, so that forks find it there (see `presim.capture.zygote`).

The script is run to the end of its top level under a name that is not ``__main__``: its imports, and whatever it
prepares for them (modules that it stands in for, variables). Then the script and the files beside it are forgotten, and
each fork runs them as if nothing had been. That is for scripts which keep what they do behind ``__name__ ==
"__main__"``, as those of ``presim validate`` do; others are never run here.

Of any other script only the imports at its beginning are made (`import_leading`): those of installed packages that
stand before every other statement, which come to the same in each rank. A package that reads which rank it is in while
it is imported is none of those, and `RankRead` says so.

Nothing may be asked of the device here, which is a rank's own: questions about what kind of device it is are answered
past PyTorch, and whatever would begin to use it raises.
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
import runpy
import sys
import sysconfig
import types
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

_NAME = "presim_ahead"  # in the place of __main__
_ATTRIBUTES = {"major": 75, "minor": 76, "multi_processor_count": 16}  # cudaDeviceAttr


def preimport(script: Path) -> None:
    """Run the top level of the script, torch being imported; raises whatever that raises."""
    script = script.resolve()  # what it makes names its file as it was run: `_comes_from`
    folder, arguments = str(script.parent), sys.argv
    sys.path.insert(0, folder)
    sys.argv = [str(script)]
    try:
        with _device_unused():
            runpy.run_path(str(script), run_name=_NAME)
    finally:
        sys.argv = arguments
        sys.path.remove(folder)
    for name, module in list(sys.modules.items()):
        if _comes_from(folder, module):
            del sys.modules[name]
    _read_compilers()


class RankRead(Exception):
    """A package asked for a variable that each rank has its own value of."""


def import_leading(script: str, own: Collection[str], *, is_module: bool) -> None:
    """Import what a script begins with, torch being imported; raises whatever that raises.

    ``own``: variables that each rank will have its own value of.

    Raises:
        RankRead: what was imported depends on the rank.
    """
    path = _source_of(script) if is_module else Path(script)
    with _device_unused(), _unread(own):
        for name, parts in leading_imports(path.read_text()) if path else ():
            if not _is_installed(name):
                break  # a file of the author's own, which may do anything
            __import__(name, fromlist=parts)
    _read_compilers()


def import_dynamo() -> None:
    """Import what PyTorch imports where the first optimizer is made: a second of CPU, else in every rank."""
    with _device_unused():
        importlib.import_module("torch._dynamo")


def leading_imports(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """The modules that a script imports before it does anything else, in order, each with the names it takes of it."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            found += [(alias.name, ()) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            found.append((statement.module, tuple(alias.name for alias in statement.names)))
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            break
    return [(name, parts) for name, parts in found if name != "__future__"]


def _source_of(module: str) -> Path | None:
    """The file that ``python -m MODULE`` would run, of an installed package; its parent packages are imported."""
    if not _is_installed(module):
        return None
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
    return Path(spec.origin) if spec is not None and spec.origin else None


def _is_installed(name: str) -> bool:
    """Whether a module is Python's own or a package's; files beside the script and in the working directory are not."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top in sys.modules:
        return True
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return importlib.machinery.PathFinder.find_spec(top, places) is not None


@contextlib.contextmanager
def _unread(names: Collection[str]) -> Iterator[None]:
    """Raises at its end where somebody asked for one of these variables."""
    environ: Any = os._Environ
    read, asked = environ.__getitem__, set[str]()

    def watched(variables: Any, key: Any) -> Any:
        if key in names:
            asked.add(key)
        return read(variables, key)

    environ.__getitem__ = watched
    try:
        yield
    finally:
        environ.__getitem__ = read
    if asked:
        raise RankRead(", ".join(sorted(asked)))


def _read_compilers() -> None:
    """What inductor reads of PyTorch and Triton at its first compilation, every file of them: 0.35 s of CPU."""
    code: Any = sys.modules.get("torch._inductor.codecache")
    for name in ("torch_key", "triton_key"):  # kept for the process; they are no more than hashes
        if hasattr(code, name):
            getattr(code, name)()


def _comes_from(folder: str, module: types.ModuleType) -> bool:
    """Whether it is a file there, or was made by one: a stand-in has no place in the import system, but functions."""
    places = [vars(module)]
    if vars(module).get("__spec__") is None:
        places += [each.__globals__ for each in vars(module).values() if isinstance(each, types.FunctionType)]
    return any(str(Path(str(place.get("__file__"))).parent) == folder for place in places)


@contextlib.contextmanager
def _device_unused() -> Iterator[None]:
    """Of the emulated device only what it is can be asked, and PyTorch neither uses it nor takes it for used."""
    torch: Any = sys.modules["torch"]
    asked: dict[str, Callable[..., Any]] = {
        "_lazy_init": _refuse,
        "current_device": lambda: 0,
        "get_device_properties": _properties,
    }
    with _answered(torch.cuda, asked), _answered(torch._C, {"_cuda_getDeviceCount": _count}):
        yield
    interface: Any = sys.modules.get("torch._dynamo.device_interface")
    if interface is not None:
        interface.caching_worker_device_properties.clear()  # they were ours


@contextlib.contextmanager
def _answered(module: Any, answers: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Modules that are imported meanwhile may keep such a function: once all are, it is PyTorch's own."""
    before = {name: getattr(module, name) for name in answers}
    now = dict(answers)
    vars(module).update({name: _whichever(now, name, before[name]) for name in answers})
    try:
        yield
    finally:
        now.clear()
        vars(module).update(before)


def _whichever(now: dict[str, Callable[..., Any]], name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        return now.get(name, own)(*args, **kwargs)

    return call


def _refuse() -> NoReturn:
    raise RuntimeError("the device is used while modules are imported")


def _count() -> int:
    """As PyTorch's own, after which it would not let this process be forked."""
    return _ask("cudaGetDeviceCount")


def _properties(device: Any = None) -> types.SimpleNamespace:
    """What modules ask for when they are imported; another attribute is an AttributeError."""
    found = {name: _ask("cudaDeviceGetAttribute", number, 0) for name, number in _ATTRIBUTES.items()}
    return types.SimpleNamespace(**found)


def _ask(function: str, *arguments: int) -> int:
    value = ctypes.c_int()
    if getattr(ctypes.CDLL("libcudart.so.13"), function)(ctypes.byref(value), *arguments) != 0:
        _refuse()
    return value.value
