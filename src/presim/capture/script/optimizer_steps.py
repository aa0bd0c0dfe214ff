"""Report the steps of optimizers, and assign their memory."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from presim.capture.script.module_hooks import ModuleScopes
from presim.capture.script.real_clock import now_ns
from presim.capture.steps.observer import StepObserver, elements_of
from presim.trace.schema import Category

_HOOKED_STEP = Optimizer.profile_hook_step(lambda *args: None).__code__  # PyTorch's wrapper of every `step`


class OptimizerSteps:
    """Tells the observer of steps when an optimizer has stepped."""

    def __init__(
        self,
        scopes: ModuleScopes,
        observer: StepObserver,
        framework_tensors: Callable[[], Sequence[tuple[Category, Iterable[torch.Tensor]]]] = list,
    ) -> None:
        self.scopes = scopes
        self.observer = observer
        self.framework_tensors = framework_tensors  # by category: those that frameworks keep outside of modules
        self._stepping: Optimizer | None = None  # optimizer whose step has begun and not ended
        self._inside = False  # within a step that the framework delimits
        self._outer: Optimizer | None = None  # outermost optimizer whose step has begun: it may step others
        # Number of state tensors when last assigned.
        self._state_tensors: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Install hooks on every optimizer of the process."""
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._outer is None or not _is_running(self._outer):  # not within another optimizer's step
            self._outer = optimizer
            if not self._inside:
                self.observer.update_begins(id(optimizer))
        start = now_ns()
        self._stepping = optimizer
        parameters = _parameters(optimizer)
        gradients = (parameter.grad for parameter in parameters if parameter.grad is not None)
        self.scopes.categorise_blocks(
            start, (Category.PARAMETER, parameters), (Category.GRADIENT, gradients), *self.framework_tensors()
        )

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        start = now_ns()
        self._stepping = None
        self._categorise_state(optimizer, start)
        if optimizer is not self._outer:
            return
        self._outer = None
        if not self._inside:
            self.observer.updated(elements_of(_parameters(optimizer)), target=id(optimizer))

    def categorise_unfinished(self) -> None:
        """At the end of the script, assign the state of an optimizer whose step raised, for example out of memory.

        Frameworks may have run out of memory before the first step, while they built their buffers.
        """
        self.scopes.categorise_blocks(now_ns(), *self.framework_tensors())
        if self._stepping is not None:
            self._categorise_state(self._stepping, now_ns())

    @contextlib.contextmanager
    def whole_step(self) -> Iterator[None]:
        """Treat the block as one update, however many optimizer steps it contains."""
        self.observer.update_begins()
        self._inside = True
        self.scopes.categorise_blocks(now_ns(), *self.framework_tensors())
        try:
            yield
        finally:
            self._inside = False
        self.observer.updated()

    def _categorise_state(self, optimizer: Optimizer, start_ns: int) -> None:
        """Assign the state's tensors if there are new ones, usually after the first step."""
        states = [value for state in optimizer.state.values() if isinstance(state, dict) for value in state.values()]
        new = [] if self._state_tensors.get(optimizer) == len(states) else states
        self._state_tensors[optimizer] = len(states)
        tensors = (value for value in new if isinstance(value, torch.Tensor))
        self.scopes.categorise_blocks(start_ns, (Category.OPTIMIZER_STATE, tensors))


def _is_running(optimizer: Optimizer) -> bool:
    """Whether this code was called by the step of an optimizer. One that raised is not running."""
    frame = sys._getframe(2)
    while frame := frame.f_back:
        if frame.f_code is _HOOKED_STEP and frame.f_locals.get("self") is optimizer:
            return True
    return False


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
