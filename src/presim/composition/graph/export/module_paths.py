"""Module paths of the operators that are being recorded."""

from __future__ import annotations

import bisect
from typing import Any

import torch


class Scopes:
    """Tracks the module of each operator: the called module in forward, the forward operator's module in backward."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._stack = [""]
        self._since, self._scope = [0], [""]  # sequence numbers of autograd, and the scope from there on

    def install(self) -> list[Any]:
        """Observe the calls of all modules; returns what takes the observers away again."""
        register = torch.nn.modules.module
        return [
            register.register_module_forward_pre_hook(lambda module, inputs: self._enter(module)),
            register.register_module_forward_hook(lambda module, inputs, output: self._leave(), always_call=True),
        ]

    def current(self) -> tuple[str, bool, bool]:
        """(scope of the current operator, whether it runs in the backward pass, whether autograd itself issued it)."""
        node = torch._C._current_autograd_node()
        if node is not None:
            index = bisect.bisect_right(self._since, node._sequence_nr()) - 1
            return self._scope[max(0, index)], True, False
        return self._stack[-1], False, False

    def _enter(self, module: torch.nn.Module) -> None:
        self._stack.append(self._names.get(module, self._stack[-1]))
        self._mark()

    def _leave(self) -> None:
        self._stack.pop()
        self._mark()

    def _mark(self) -> None:
        self._since.append(torch.autograd._get_sequence_nr())
        self._scope.append(self._stack[-1])
