"""Import what a script imports before a rank runs it, so that forks find it there (see `presim.capture.zygote`).

The script is run to the end of its top level under a name that is not ``__main__``: its imports, and whatever it
prepares for them (modules that it stands in for, variables). Then the script and the files beside it are forgotten, and
each fork runs them as if nothing had been. That is for scripts which keep what they do behind ``__name__ ==
"__main__"``, as those of ``presim validate`` do; others are never run here.

Nothing may be asked of the device here, which is a rank's own: questions about what kind of device it is are answered
past PyTorch, and whatever would begin to use it raises.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import runpy
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

_NAME = "presim_ahead"  # in the place of __main__
_ATTRIBUTES = {"major": 75, "minor": 76, "multi_processor_count": 16}  # cudaDeviceAttr


def import_ahead(script: Path) -> None:
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
