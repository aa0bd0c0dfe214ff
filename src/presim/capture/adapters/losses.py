"""Recognises losses that a framework computes by its own autograd function, e.g. over a split vocabulary.

The policies know a loss by its operator's name. Within such a function there are maxima, exponentials, sums and
collectives only, and what comes out would be a number that no loss can be (below zero). Functions are found by their
name: torchtitan's, Megatron's, Transformer Engine's and other cross entropies; PyTorch's own for split vocabularies
is no class, and is named here.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from presim.capture.device_values.triton import answer_loss
from presim.capture.script.after_import import when_imported
from presim.capture.script.hook import Hook
from presim.capture.script.real_clock import now_ns

_NAMED_SO = re.compile("cross_?entropy", re.IGNORECASE)
_SUM = ("sum", 2)  # a reduction, as it is written and as PyTorch numbers it


def install(hook: Hook) -> None:
    """For classes that the script defines or imports from here on."""
    function = torch.autograd.Function
    define = function.__init_subclass__  # bound to the class that is inherited from

    def defined(cls: type, **kwargs: Any) -> None:
        define(**kwargs)
        forward = cls.__dict__.get("forward")
        if _NAMED_SO.search(cls.__name__) and isinstance(forward, staticmethod):
            cls.forward = staticmethod(_answering(hook, forward.__func__))  # type: ignore[attr-defined]

    function.__init_subclass__ = classmethod(defined)  # type: ignore[assignment,arg-type]
    when_imported("torch.distributed.tensor.parallel.loss", functools.partial(_change_split, hook))


def _change_split(hook: Hook, module: Any) -> None:
    module._nll_loss_forward = _answering(hook, module._nll_loss_forward)


def _answering(hook: Hook, forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def answered(*args: Any, **kwargs: Any) -> Any:
        found = forward(*args, **kwargs)
        if not torch.compiler.is_compiling():
            start = now_ns()
            loss = found[0] if isinstance(found, tuple) else found
            if isinstance(loss, torch.Tensor) and loss.is_cuda and loss.is_floating_point():
                answer_loss(hook, loss, _terms(forward, args, kwargs) if loss.dim() == 0 else 1)
            hook.add_own_time(now_ns() - start)
        return found

    return answered


def _terms(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many losses are summed up: one a label, where the function is told to add them."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.arguments.get("reduction") not in _SUM:
        return 1
    given = [value for value in bound.arguments.values() if isinstance(value, torch.Tensor)]
    return max((value.numel() for value in given if not value.is_floating_point()), default=1)
