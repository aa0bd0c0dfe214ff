"""Kernels that Triton launches by itself: PyTorch's dispatcher does not see them, so their launchers are wrapped.

A kernel that torch.compile generated says by its parameters' names what it reads and writes. One that the script's
author wrote does not: all its tensors are taken to be read, and what it writes stays unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from presim.capture import flex_attention
from presim.capture.after_import import when_imported
from presim.capture.hook import Hook
from presim.capture.own_clock import now_ns

_WRITES, _BOTH = "out_ptr", "in_out_ptr"


class TritonKernels:
    """Tells the recorder of each launch which tensors it was given."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self._ids: dict[tuple[Any, ...], int] = {}
        self._kernels: list[Any] = []  # kept alive, so that ids stay unique

    def install(self) -> None:
        """For generated and hand-written kernels, whenever the script imports what launches them."""
        when_imported("torch._inductor.runtime.triton_heuristics", lambda module: self._wrap(module.CachingAutotuner))
        when_imported("triton.runtime.jit", lambda module: self._wrap(module.JITFunction))

    def _wrap(self, launcher: Any) -> None:
        run = launcher.run

        @functools.wraps(run)
        def observed(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            first = self.hook.launch_begins()
            try:
                return run(kernel, *args, **kwargs)
            finally:
                start = now_ns()
                self.hook.launch_ends(first, self._operator(kernel, args, kwargs))
                self.hook.add_own_time(now_ns() - start)

        launcher.run = observed

    def _operator(self, kernel: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> int:
        names = kernel.arg_names if hasattr(kernel, "arg_names") else kernel.fn.arg_names
        named = [*zip(names, args), *((name, value) for name, value in kwargs.items() if name in names)]
        tensors = [(name, value) for name, value in named if hasattr(value, "is_cuda") and hasattr(value, "stride")]
        key = (id(kernel), *((name, value.dtype, value.shape, value.stride()) for name, value in tensors))
        if key not in self._ids:
            self._kernels.append(kernel)
            self._ids[key] = self.hook.operator_id(_describe(kernel, tensors))
        return self._ids[key]


def _describe(kernel: Any, tensors: list[tuple[str, Any]]) -> str:
    name = kernel.fn.__name__
    if flex_attention.is_one(name, tensors):
        return f"op name=triton::{name} {flex_attention.describe(kernel, tensors)}"
    read = [tensor for parameter, tensor in tensors if not parameter.startswith(_WRITES)]
    written = [tensor for parameter, tensor in tensors if parameter.startswith((_WRITES, _BOTH))]
    return f"op name=triton::{name} in={_list(read)} out={_list(written)} args="


def _list(tensors: list[Any]) -> str:
    return ",".join(describe_tensor(tensor) for tensor in tensors)


def describe_tensor(tensor: Any) -> str:
    """A tensor as the recorder's hook writes it: expanded dimensions have negative sizes."""
    sizes = (-size if stride == 0 and size > 1 else size for size, stride in zip(tensor.shape, tensor.stride()))
    place = "" if tensor.is_cuda else "cpu:"
    return f"{place}{str(tensor.dtype).removeprefix('torch.')}[{';'.join(map(str, sizes))}]"
