"""Kernels that a model launches past PyTorch's operators, as operators of the graph: ``triton::NAME``.

Libraries such as mamba-ssm and flash-linear-attention launch Triton and CUDA kernels directly. They need a GPU, and
transformers runs slower PyTorch code in their place. While a graph is taken, transformers therefore gets functions that
record the kernels of the libraries' functions, on tensors without memory.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

NAMESPACE = "triton"
_SCHEMA = "(Tensor[] reads, Tensor(a!)[] writes, int flops, int exponentials) -> ()"
_defined: dict[str, torch.library.Library] = {}


def launch(
    name: str,
    reads: Sequence[torch.Tensor | None],
    writes: Sequence[torch.Tensor],
    flops: int = 0,
    exponentials: int = 0,
) -> None:
    """Record a kernel.

    Args:
        name: as the library calls it.
        reads: tensors that it reads, each once; None is left out.
        writes: tensors that it writes.
        flops: FLOPs of its matrix products for each element of the first tensor that it reads.
        exponentials: of scans without matrix products, for each element of the same tensor.
    """
    if name not in _defined:
        library = torch.library.Library(NAMESPACE, "FRAGMENT")
        library.define(name + _SCHEMA)
        library.impl(name, lambda reads, writes, flops, exponentials: None, "Meta")
        _defined[name] = library
    getattr(torch.ops.triton, name)(
        [tensor for tensor in reads if tensor is not None], list(writes), flops, exponentials
    )


def install(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Let transformers use these functions, by the names under which it looks for them in libraries.

    Must be called before a model's module is imported. Without transformers it does nothing.
    """
    try:
        hub = importlib.import_module("transformers.integrations.hub_kernels")
        choose = hub.use_kernel_func_from_hub_with_fallback
    except (ImportError, AttributeError):
        return

    @functools.wraps(choose)
    def chosen(name: str, *args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        function = functions.get(name)
        return choose(name, *args, **kwargs) if function is None else lambda fallback: function

    hub.use_kernel_func_from_hub_with_fallback = chosen  # type: ignore[attr-defined]
