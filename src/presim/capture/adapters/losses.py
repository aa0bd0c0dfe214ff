"""Recognise losses that are not one operator: of a framework's own autograd function, or of PyTorch's Python functions.

Policies recognise a loss by its operator's name. A function over a split vocabulary consists of maxima, exponentials,
sums and collectives, whose policies would give an impossible loss (below zero). Functions are recognised by name: cross
entropies of torchtitan, Megatron, Transformer Engine and others. PyTorch's own for split vocabularies is not a class
and is patched by name, as are the losses of `torch.nn.functional` that have no operator, such as `gaussian_nll_loss`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from presim.capture.device_values.triton import apply_loss_policy
from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook
from presim.capture.script.real_clock import now_ns

_NAME = re.compile("cross_?entropy", re.IGNORECASE)
_WEIGHTED = ("mse_loss", "l1_loss", "huber_loss")  # of other operators where they have weights
_SUM = ("sum", 2)  # a sum reduction as text and as PyTorch's number


def install(hook: Hook) -> None:
    """Install for classes that exist (a rank may be a fork with imports) and those that the script defines later."""
    function = torch.autograd.Function
    define = function.__init_subclass__  # bound to the base class

    def defined(cls: type, **kwargs: Any) -> None:
        define(**kwargs)
        _change_class(hook, cls)

    for cls in _subclasses(function):
        _change_class(hook, cls)
    function.__init_subclass__ = classmethod(defined)  # type: ignore[assignment,arg-type]
    when_imported("torch.distributed.tensor.parallel.loss", functools.partial(_change_split, hook))
    functional = torch.nn.functional
    for name in (*_losses_in_python(), *_WEIGHTED):
        setattr(functional, name, _with_loss_policy(hook, getattr(functional, name)))
    adaptive = torch.nn.AdaptiveLogSoftmaxWithLoss
    adaptive.forward = _of_adaptive(hook, adaptive.forward)  # type: ignore[method-assign]


def _of_adaptive(hook: Hook, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The forward pass of adaptive softmax, whose second result is the mean loss."""

    @functools.wraps(forward)
    def patched(*args: Any, **kwargs: Any) -> Any:
        result = forward(*args, **kwargs)
        start = now_ns()
        apply_loss_policy(hook, result.loss, 1)
        hook.add_own_time(now_ns() - start)
        return result

    return patched


def _losses_in_python() -> list[str]:
    """The losses of `torch.nn.functional` that are made of other operators in Python."""
    names = [name for name in vars(torch.nn.functional) if name.endswith("_loss") or _NAME.search(name)]
    operators = torch.ops.aten
    return [name for name in names if not hasattr(operators, name) and not hasattr(operators, f"{name}_loss")]


def _subclasses(cls: type) -> list[type]:
    """All direct and indirect subclasses defined so far, without duplicates."""
    descendants: dict[type, None] = {}
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        descendants |= {subclass: None} | dict.fromkeys(_subclasses(subclass))
    return list(descendants)


def _change_class(hook: Hook, cls: type) -> None:
    forward = cls.__dict__.get("forward")
    if _NAME.search(cls.__name__) and isinstance(forward, staticmethod):
        cls.forward = staticmethod(_with_loss_policy(hook, forward.__func__))  # type: ignore[attr-defined]


def _change_split(hook: Hook, module: Any) -> None:
    module._nll_loss_forward = _with_loss_policy(hook, module._nll_loss_forward)


def _with_loss_policy(hook: Hook, forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def patched(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        if not torch.compiler.is_compiling():
            start = now_ns()
            loss = output[0] if isinstance(output, tuple) else output
            if isinstance(loss, torch.Tensor) and loss.is_cuda and loss.is_floating_point():
                apply_loss_policy(hook, loss, _terms(forward, args, kwargs) if loss.dim() == 0 else 1)
            hook.add_own_time(now_ns() - start)
        return output

    return patched


def _terms(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Number of losses in the result: one per label if the reduction is a sum."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.arguments.get("reduction") not in _SUM:
        return 1
    tensors = [value for value in bound.arguments.values() if isinstance(value, torch.Tensor)]
    labels = [tensor for tensor in tensors if not tensor.is_floating_point()]
    return max((tensor.numel() for tensor in labels or tensors[1:2]), default=1)
