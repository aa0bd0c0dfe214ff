"""Stop Triton's compiler before machine code.

The emulated device runs no kernel, so nothing reads one's PTX or machine code. What a launch needs is settled earlier:
Triton's own code for the work, and shared memory, warps and the name from the translation to LLVM's code. LLVM's
optimisation, its back end and ``ptxas`` do not run.

Kernels compiled so get another key in Triton's cache, or a real run would load them. Inductor's cache, which keeps
kernels by the key of their graph, is presim's own (`presim.capture.processes.variables`).
"""

from __future__ import annotations

import functools
import re
from typing import Any

from presim.capture.script.after_import import when_imported

_ENTRY = re.compile(r"^define (?:\w+ )*ptx_kernel [^@]*@([\w.$]+)\(", re.MULTILINE)
_KEY = "-presim-without-machine-code"
_NO_CODE = b"presim: no machine code"


def install() -> None:
    """Install for Triton's CUDA back end."""
    when_imported("triton.backends.nvidia.compiler", _stop_early)


def _stop_early(module: Any) -> None:
    backend: Any = getattr(module, "CUDABackend", None)
    if not (hasattr(backend, "add_stages") and hasattr(backend, "hash") and hasattr(module, "llvm")):
        return
    add_stages, hash_of = backend.add_stages, backend.hash

    @functools.wraps(add_stages)
    def add_short_stages(self: Any, stages: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        add_stages(self, stages, *args, **kwargs)
        if {"ptx", "cubin"} <= stages.keys():
            stages["ptx"] = functools.partial(_name_kernel, stages["ptx"])
            stages["cubin"] = lambda source, metadata: _NO_CODE

    @functools.wraps(hash_of)
    def hash_apart(self: Any) -> str:
        return f"{hash_of(self)}{_KEY}"

    backend.add_stages, backend.hash = add_short_stages, hash_apart
    module.llvm = _Unoptimised(module.llvm)


class _Unoptimised:
    """Triton's binding of LLVM, whose optimisation does nothing."""

    def __init__(self, llvm: Any) -> None:
        self._llvm = llvm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llvm, name)

    def optimize_module(self, *args: Any, **kwargs: Any) -> None:
        """Leave the module as it is."""


def _name_kernel(make_ptx: Any, source: Any, metadata: dict[str, Any]) -> Any:
    """An empty text, after noting the kernel's name; Triton's own PTX where the name is not plain."""
    names = _ENTRY.findall(source) if isinstance(source, str) else []
    if len(names) != 1:
        return make_ptx(source, metadata)
    metadata["name"] = names[0]
    return ""
