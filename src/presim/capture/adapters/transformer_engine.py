"""Transformer Engine's own functions as operators: they launch kernels without PyTorch's dispatcher.

Its layers call the functions of a compiled module (norms, activations, casts, optimizers, router) through pybind11,
where no operator callback sees them. Each function is wrapped as that module is loaded, so that what it launches has
the tensors it was given and those it gave back. Products and attention have shapes of their own, from cuBLASLt and
cuDNN.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from presim.capture.adapters.triton_kernels import describe_tensor
from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook

_MODULE = "transformer_engine_torch"
# Their kernels beside the product or attention work on lengths, offsets and scales, not on the operands.
_LIBRARY_CALLS = ("fused_attn", "generic_gemm", "te_general_grouped_gemm")
_ATTENTION = "fused_attn"
# Lists that multi-tensor functions write, of those they are given; they return nothing.
_WRITTEN = {
    "multi_tensor_adam": slice(1, None),  # gradients, parameters, both moments, master weights
    "multi_tensor_sgd": slice(1, None),
    "multi_tensor_scale": slice(1, None),
    "multi_tensor_quantize": slice(1, None),
}


class TransformerEngine:
    """Tells the recorder which function launched what."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self._ids: dict[tuple[str, str, str, str], int] = {}

    def install(self) -> None:
        """For the compiled module, as soon as the script has Transformer Engine load it."""
        when_imported("transformer_engine.common", self._wrap_loader)

    def _wrap_loader(self, common: Any) -> None:
        load = common.load_framework_extension

        @functools.wraps(load)
        def loading(framework: str) -> None:
            load(framework)
            if framework == "torch":
                self._wrap_functions(sys.modules[_MODULE])

        common.load_framework_extension = loading

    def _wrap_functions(self, module: Any) -> None:
        for name, function in inspect.getmembers(module, inspect.isbuiltin):
            if not name.startswith(("get_", "_")):
                setattr(module, name, self._wrapped(name, function))

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def observed(*args: Any, **kwargs: Any) -> Any:
            first = self.hook.launch_begins()
            result = None
            try:
                result = function(*args, **kwargs)
            finally:
                start = time.perf_counter_ns()
                self.hook.launch_ends(first, self._operator(name, (*args, *kwargs.values()), result))
                self.hook.add_own_time(time.perf_counter_ns() - start)
            return result

        return observed

    def _operator(self, name: str, given: tuple[Any, ...], result: Any) -> int:
        written = list(_operands(result))
        if name.startswith(_LIBRARY_CALLS):
            read, written = [one for one in _operands(given) if _is_lengths(one)], []
        else:
            returned = {id(tensor) for group in written for tensor in group}
            read = [group for group in _operands(given) if not returned & {id(tensor) for tensor in group}]
        for prefix, lists in _WRITTEN.items():
            if name.startswith(prefix):
                written = [group for group in read if len(group) > 1 or group[0].numel() > 1][lists]
        window = _window(given) if name.startswith(_ATTENTION) else ""
        key = (name, _describe(read), _describe(written), window)
        if key not in self._ids:
            self._ids[key] = self.hook.operator_id(f"op name=te::{name} in={key[1]} out={key[2]} args={window}")
        return self._ids[key]


def _operands(value: Any) -> Iterator[list[torch.Tensor]]:
    """The tensors in an argument or result: one by one, but lists of them together."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if hasattr(value, "get_data_tensors"):  # quantised: rows and columns are kept apart, each beside its scales
        parts = value.get_data_tensors()
        yield from ([part] for part in (parts if isinstance(parts, tuple) else (parts,)) if part is not None)
    elif isinstance(value, torch.Tensor):
        yield [value]
    elif isinstance(value, (list, tuple)):
        plain = [one for one in value if isinstance(one, torch.Tensor) and not hasattr(one, "get_data_tensors")]
        if len(plain) == len(value) and len({one.dtype for one in plain}) == 1:
            yield plain
        else:
            for one in value:
                yield from _operands(one)


def _window(given: tuple[Any, ...]) -> str:
    """Tokens that a query sees up to itself, from the one pair of numbers (before, after) that attention is given.

    cuDNN is handed a window as a subgraph of masks; empty: none.
    """
    pairs = (one for one in given if isinstance(one, (tuple, list)) and len(one) == 2)
    before = next((pair[0] for pair in pairs if all(isinstance(number, int) for number in pair)), -1)
    return str(before + 1) if before >= 0 else ""


def _is_lengths(group: list[torch.Tensor]) -> bool:
    return all(tensor.dtype in (torch.int32, torch.int64) for tensor in group)


def _describe(groups: list[list[torch.Tensor]]) -> str:
    return ",".join(_describe_group(group) for group in groups)


def _describe_group(group: list[torch.Tensor]) -> str:
    if len(group) == 1:
        return describe_tensor(group[0])
    name = str(group[0].dtype).removeprefix("torch.")
    return f"{name}{{{len(group)};{sum(tensor.numel() for tensor in group)}}}"
