"""Record Transformer Engine's own functions as operators: they launch kernels without PyTorch's dispatcher.

Its layers call functions of a compiled module (norms, activations, casts, optimizers, router) through pybind11, where
no operator callback sees them. Each function is wrapped when the module is loaded, so that its launches are recorded
with its input and output tensors. Products and attention get their shapes from cuBLASLt and cuDNN.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from presim.capture.adapters.triton_kernels import describe_tensor
from presim.capture.device_values.triton import update_values
from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook

_MODULE = "transformer_engine_torch"
# Their kernels besides the product or attention work on lengths, offsets and scales, not on the operands.
_LIBRARY_CALLS = ("fused_attn", "generic_gemm", "te_general_grouped_gemm")
_ATTENTION = "fused_attn"
_ROUTERS = ("fused_topk_with_score_function_fwd", "fused_topk_with_score_function_qb_fwd")  # (logits, topk, ...)
# Argument lists that multi-tensor functions write; these functions return nothing.
_WRITTEN_LISTS = {
    "multi_tensor_adam": slice(1, None),  # gradients, parameters, both moments, master weights
    "multi_tensor_sgd": slice(1, None),
    "multi_tensor_scale": slice(1, None),
    "multi_tensor_quantize": slice(1, None),
}


class TransformerEngine:
    """Records which function launched what."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self._ids: dict[tuple[str, str, str, str], int] = {}

    def install(self) -> None:
        """Install once Transformer Engine loads its compiled module."""
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
                if name in _ROUTERS and result is not None:
                    self._route(args, kwargs, result)
                self.hook.add_own_time(time.perf_counter_ns() - start)
            return result

        return observed

    def _route(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Sequence[Any]) -> None:
        """Let the routing policy choose the experts of a fused router, whose map programs read on the host."""
        experts_per_token = kwargs["topk"] if "topk" in kwargs else args[1]
        route_map = result[1]
        if isinstance(route_map, torch.Tensor) and route_map.dtype is torch.bool and route_map.is_contiguous():
            rows, experts = route_map.flatten(0, -2).shape
            written = route_map.data_ptr(), rows, experts, int(experts_per_token)
            update_values(self.hook, functools.partial(self.hook.write_route_map, *written))

    def _operator(self, name: str, arguments: tuple[Any, ...], result: Any) -> int:
        written = list(_operands(result))
        if name.startswith(_LIBRARY_CALLS):
            read, written = [group for group in _operands(arguments) if _is_lengths(group)], []
        else:
            returned = {id(tensor) for group in written for tensor in group}
            read = [group for group in _operands(arguments) if not returned & {id(tensor) for tensor in group}]
        for prefix, lists in _WRITTEN_LISTS.items():
            if name.startswith(prefix):
                written = [group for group in read if len(group) > 1 or group[0].numel() > 1][lists]
        numbers = _attention_numbers(arguments) if name.startswith(_ATTENTION) else ""
        key = (name, _describe(read), _describe(written), numbers)
        if key not in self._ids:
            self._ids[key] = self.hook.operator_id(f"op name=te::{name} in={key[1]} out={key[2]} args={numbers}")
        return self._ids[key]


def _operands(value: Any) -> Iterator[list[torch.Tensor]]:
    """The tensors in an argument or result, single ones in lists of one."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if hasattr(value, "get_data_tensors"):  # quantised: rows and columns are separate tensors, each with its scales
        parts = value.get_data_tensors()
        yield from ([part] for part in (parts if isinstance(parts, tuple) else (parts,)) if part is not None)
    elif isinstance(value, torch.Tensor):
        yield [value]
    elif isinstance(value, (list, tuple)):
        plain = [
            element
            for element in value
            if isinstance(element, torch.Tensor) and not hasattr(element, "get_data_tensors")
        ]
        if len(plain) == len(value) and len({element.dtype for element in plain}) == 1:
            yield plain
        else:
            for element in value:
                yield from _operands(element)


def _attention_numbers(arguments: tuple[Any, ...]) -> str:
    """Attention's window in tokens, including the query, and packed tokens of queries and keys; empty without either.

    The window is the only pair of integers (before, after) among the arguments; cuDNN gets it as a subgraph of masks.
    Packed queries and keys are the first tensors of [tokens, heads, dim].
    """
    pairs = (argument for argument in arguments if isinstance(argument, (tuple, list)) and len(argument) == 2)
    before = next((pair[0] for pair in pairs if all(isinstance(number, int) for number in pair)), -1)
    packed_tokens = [
        group[0].shape[0] for group in _operands(arguments) if group[0].dim() == 3 and not _is_lengths(group)
    ][:2]
    if len(packed_tokens) == 2:
        return f"{before + 1},{packed_tokens[0]},{packed_tokens[1]}"
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
