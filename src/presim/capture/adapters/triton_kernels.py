"""Wraps Triton's kernel launchers, because PyTorch's dispatcher does not see those launches.

What a hand-written kernel reads, writes and computes follows from its intermediate code (`triton_work`) with the
arguments and the grid of the launch. Of a kernel that torch.compile generated, tensors follow from the names of its
parameters (`triton_parameters`) and arithmetic from its source (`triton_arithmetic`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from presim.capture.adapters import flex_attention
from presim.capture.adapters.triton_arithmetic import arithmetic, is_tiled
from presim.capture.adapters.triton_launch import LaunchWork
from presim.capture.adapters.triton_parameters import GENERATED, each_once, read_and_written
from presim.capture.adapters.triton_templates import compiled_template, template_grid
from presim.capture.device_values import triton as triton_values
from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook
from presim.capture.script.real_clock import now_ns


class TritonKernels:
    """Tells the recorder of each launch which tensors it was given."""

    def __init__(self, hook: Hook, *, values: bool = False) -> None:
        self.hook = hook
        self.values = values  # whether those that kernels write are kept up to date
        self.work = LaunchWork(hook)
        self._ids: dict[tuple[Any, ...], int] = {}
        self._templates: dict[int, Any] = {}  # by id of a generated kernel: what was compiled for it
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
            compiled, done = None, False
            try:
                compiled = run(kernel, *args, **kwargs)
                done = not kwargs.get("warmup")
                return compiled
            finally:
                start = now_ns()
                named = _named(kernel, args, kwargs)
                self.hook.launch_ends(first, self._operator(kernel, *self._code(kernel, compiled, args, kwargs), named))
                if self.values and done:
                    written = [name for name in named if name.startswith(GENERATED)] or self.work.written(compiled)
                    triton_values.after_launch(self.hook, kernel.fn.__name__, named, written)
                self.hook.add_own_time(now_ns() - start)

        launcher.run = observed

    def _code(self, kernel: Any, compiled: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """What was compiled, and the grid of the launch; None for generated kernels without products."""
        if "grid" in kwargs:
            return compiled, kwargs["grid"]
        if id(kernel) not in self._templates:
            self._kernels.append(kernel)
            self._templates[id(kernel)] = compiled_template(kernel)
        return self._templates[id(kernel)], template_grid(kernel, args)

    def _operator(self, kernel: Any, compiled: Any, grid: Any, named: dict[str, Any]) -> int:
        known = self.work.text(kernel, compiled, named, grid)
        tensors = [(name, value) for name, value in named.items() if triton_values.is_tensor(value)]
        tensors = each_once(tensors)
        sizes = {name: value for name, value in named.items() if name.endswith("numel") and isinstance(value, int)}
        key = (id(kernel), known, *((name, value.dtype, value.shape, value.stride()) for name, value in tensors))
        if key not in self._ids:
            self._kernels.append(kernel)
            self._ids[key] = self.hook.operator_id(_describe(kernel, tensors, sizes, known))
        return self._ids[key]


def _named(kernel: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the kernel's parameters."""
    names = kernel.arg_names if hasattr(kernel, "arg_names") else kernel.fn.arg_names
    return dict(zip(names, args)) | {name: value for name, value in kwargs.items() if name in names}


def _describe(kernel: Any, tensors: list[tuple[str, Any]], sizes: dict[str, int], known: str) -> str:
    name = kernel.fn.__name__
    if flex_attention.is_one(name, tensors):
        return f"op name=triton::{name} {flex_attention.describe(kernel, tensors)}"
    read, written = read_and_written(tensors)
    if known:
        return f"op name=triton::{name} in={_list(read)} out={_list(written)} args= {known}"
    done = arithmetic(getattr(kernel.fn, "src", ""), sizes)
    counts = f" instructions={','.join(map(str, done))} tiled={int(is_tiled(sizes))}" if any(done) else ""
    return f"op name=triton::{name} in={_list(read)} out={_list(written)} args={counts}"


def _list(tensors: list[Any]) -> str:
    return ",".join(describe_tensor(tensor) for tensor in tensors)


def describe_tensor(tensor: Any) -> str:
    """A tensor as the recorder's hook writes it: expanded dimensions have negative sizes."""
    sizes = (-size if stride == 0 and size > 1 else size for size, stride in zip(tensor.shape, tensor.stride()))
    place = "" if tensor.is_cuda else "cpu:"
    return f"{place}{str(tensor.dtype).removeprefix('torch.')}[{';'.join(map(str, sizes))}]"
