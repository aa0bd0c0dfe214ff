"""Fused norms and compiled functions: one kernel on a CUDA device, several operators on the meta device.

A function under ``torch.compile`` runs eagerly while a model is traced. Its operators are marked, so that
`presim.composition.passes.compiled_functions` makes kernels of them as a compiler does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

NAMESPACE = "presim"  # namespace of operators that replace ATen's operators of the same name
ATTRIBUTE = "compiled"  # attribute of operators: name of the compiled function
_regions: list[str] = []
# Keeps libraries alive: PyTorch unregisters the kernels of a deleted library.
_live_libraries: list[torch.library.Library] = []


def region() -> str:
    """Name of the compiled function that runs now; empty outside of any."""
    return _regions[-1] if _regions else ""


def install() -> None:
    """Register operators that the meta device lacks, and mark compiled functions."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define("_fused_rms_norm(Tensor input, Tensor? weight) -> (Tensor, Tensor)")
    library.define("_fused_rms_norm_backward(Tensor grad, Tensor input, Tensor rstd, Tensor? weight) -> Tensor[]")
    library.impl("_fused_rms_norm", _forward, "Meta")
    library.impl("_fused_rms_norm_backward", _backward, "Meta")
    _live_libraries.append(library)
    torch.compile = _compile  # type: ignore[assignment]


def rms_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """RMS norm as one operator with its own backward."""
    return _RmsNorm.apply(input, weight)  # type: ignore[no-any-return]


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, input: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        out, rstd = torch.ops.presim._fused_rms_norm(input, weight)
        context.save_for_backward(input, rstd, weight)
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        input, rstd, weight = context.saved_tensors
        input_gradients = torch.ops.presim._fused_rms_norm_backward(gradients[0], input, rstd, weight)
        return (*input_gradients, None)[:2]


def _forward(input: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    rows = (*input.shape[:-1], 1)
    return torch.empty_like(input), torch.empty(rows, dtype=torch.float32, device="meta")


def _backward(
    grad: torch.Tensor, input: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None
) -> list[torch.Tensor]:
    return [torch.empty_like(tensor) for tensor in (input, weight) if tensor is not None]


def _compile(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Replacement for ``torch.compile``, as a function or a decorator."""
    if function is None:
        return functools.partial(_compile, **options)
    name = getattr(function, "__name__", type(function).__name__)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _regions.append(name)
        try:
            return function(*args, **kwargs)
        finally:
            _regions.pop()

    return run
