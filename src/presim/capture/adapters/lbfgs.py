"""Let L-BFGS run to its limits where its gradients are not computed.

`torch.optim.LBFGS` ends a step when a directional derivative is above zero, or when the loss stays the same. A
policy's numbers are positive and constant, so that a step would end after its first closure. A real step of a
model with many parameters ends at `max_iter` or `max_eval` until training converges.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from presim.capture.script.hook import Hook
from presim.capture.script.module_hooks import ModuleScopes

_TOLERANCES = ("tolerance_grad", "tolerance_change")


class LineSearches:
    """Steps of L-BFGS that run to their limits; the batch counts once, however often the closure evaluates it."""

    def __init__(self, hook: Hook, scopes: ModuleScopes) -> None:
        self._hook = hook
        self._scopes = scopes
        self._limits: dict[tuple[int, int], None] = {}  # (max_iter, max_eval) of the optimizers, in order

    def install(self) -> None:
        """Install before the script makes an optimizer, which wraps its step."""
        optimizer_class = torch.optim.LBFGS
        optimizer_class.step = self._to_its_limits(optimizer_class.step)  # type: ignore[method-assign]

    def notes(self) -> list[str]:
        """A sentence for each limit that ended steps."""
        return [
            f"Steps of LBFGS do not converge here: they end at max_iter={iterations} or max_eval={evaluations}. Real "
            "ones take fewer closures once training converges."
            for iterations, evaluations in self._limits
        ]

    def _to_its_limits(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def patched(optimizer: Any, closure: Callable[[], Any]) -> Any:
            group = optimizer.param_groups[0]
            tolerances = {name: group[name] for name in _TOLERANCES}
            if self._has_large_gradient(group["params"]):
                self._limits[group["max_iter"], group["max_eval"]] = None
                group.update(dict.fromkeys(_TOLERANCES, -math.inf))
            try:
                return step(optimizer, self._counted_once(closure))
            finally:
                group.update(tolerances)
                self._scopes.batch.is_repeated = False

        return patched

    def _counted_once(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """A closure from whose second evaluation on the model's input is that of the first."""

        def evaluate() -> Any:
            loss = closure()
            self._scopes.batch.is_repeated = True
            return loss

        return evaluate

    def _has_large_gradient(self, parameters: list[torch.Tensor]) -> bool:
        """Whether the flat gradient of all parameters is too large to be computed."""
        elements = sum(parameter.numel() for parameter in parameters if parameter.is_cuda)
        return elements > 0 and not self._hook.is_small(False, elements, parameters[0].element_size())
