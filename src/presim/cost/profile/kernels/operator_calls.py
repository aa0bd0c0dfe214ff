"""Make a described operator call executable, with its tensors on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from presim.cost.profile.calls.call import Argument, Call, Tensor, Tensors
from presim.cost.profile.kernels.tensors import tensor_for

_TYPE = "torch."  # prefix of type names


def bind(call: Call) -> Callable[[], Any]:
    """The operator bound to its arguments, which stay allocated; its result belongs to the caller.

    The overload is resolved once, by calling: PyTorch's own resolution formats the tensors' values for each overload
    that does not fit, and waits for the device.

    Raises:
        RuntimeError: no overload takes these arguments on this device.
        AttributeError: this PyTorch does not have the operator.
    """
    arguments = [_argument(argument) for argument in call.arguments]
    options = {name: _argument(value) for name, value in call.options}
    operator = getattr(torch.ops.aten, (call.through or call.operator).removeprefix("aten::"))
    refused = ""
    for name in operator.overloads():
        overload: Callable[..., Any] = getattr(operator, name)
        try:
            overload(*arguments, **options)
        except (RuntimeError, TypeError) as error:
            refused = refused or str(error)  # the first overload is the plain one; later ones miss an argument
            continue
        return lambda: overload(*arguments, **options)
    raise RuntimeError(refused or f"no overload of {call.operator}")


def _argument(argument: Argument) -> Any:
    if isinstance(argument, Tensor):
        return tensor_for(argument)
    if isinstance(argument, Tensors):
        return [tensor_for(member) for member in argument.members]
    if isinstance(argument, str) and argument.startswith(_TYPE):
        return getattr(torch, argument.removeprefix(_TYPE))
    return list(argument) if isinstance(argument, tuple) else argument
