"""Tell the recorder which module runs and which memory category its tensors have.

Global forward hooks name the module whose forward pass runs. Backward work finds its module through autograd's sequence
numbers (see shim/hook), so tensors need no hooks and in-place operations are unaffected. Memory categories follow
TorchSim, appendix D: parameters and buffers are assigned when their module runs, inputs when the outermost module runs,
gradients and optimizer states around the optimizer's step.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from presim.capture.script.batch_counts import OutermostCalls, tensors
from presim.capture.script.hook import Hook
from presim.capture.script.real_clock import now_ns
from presim.capture.script.replaced_parameters import own_part
from presim.capture.steps.observer import StepObserver
from presim.trace.schema import Category

_ROUNDS, _TIMED_CALLS = 5, 100


class ModuleScopes:
    """Installs the module hooks and feeds `OutermostCalls` with the outermost modules."""

    def __init__(self, hook: Hook, observer: StepObserver | None = None) -> None:
        self.hook = hook
        self.observer = observer
        self._is_observed = False  # not while the cost of hooks is measured
        self.batch = OutermostCalls()
        self._names: dict[int, int] = {}  # id(module) -> scope id
        self._roots: dict[int, nn.Module] = {}  # keeps modules alive, so that ids stay unique
        self._replicas: dict[int, weakref.ref[nn.Module]] = {}  # of `DataParallel`, which makes new ones at each call
        self._depth = 0
        self._call_overhead_ns = 0  # time that PyTorch takes to call both hooks of a module
        self._own_ns = 0  # time spent inside the hooks
        self._sequence_first: set[int] = set()  # ids of modules that take [sequence, batch, feature]

    def install(self) -> None:
        """Install hooks on every module of the process, present and future.

        The overhead of a hooked call is measured here and subtracted from host time.
        """
        bare = self._time_calls()
        module_hooks.register_module_forward_pre_hook(self._enter)
        module_hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        self._call_overhead_ns = max(0, self._time_calls() - bare)
        self.batch = self._observed_batch()  # drops the module used for timing

    def _observed_batch(self) -> OutermostCalls:
        """A batch whose counts the observer marks; calls of models are marked from here on."""
        if self.observer is None:
            return OutermostCalls()
        self._is_observed = True
        return OutermostCalls(self.observer.model_returned, self.observer.model_reset)

    def _time_calls(self) -> int:
        """Nanoseconds per call of an empty module, without the time counted inside the hooks.

        The minimum of several rounds, because other processes may use this CPU meanwhile.
        """
        module = nn.Identity()
        rounds = []
        for _ in range(_ROUNDS):
            start, counted = now_ns(), self._own_ns
            for _ in range(_TIMED_CALLS):
                module(None)
            rounds.append(now_ns() - start - (self._own_ns - counted))
        return min(rounds) // _TIMED_CALLS

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        start = now_ns()
        scope = self._names.get(id(module))
        if scope is None:
            scope = self._name(module)
        if self._depth == 0 and not in_backward():
            start = self._enter_root(module, args, start)
        if id(module) in self._sequence_first:
            self.batch.enter_layer(module, args)
        self._depth += 1
        self.hook.enter_scope(scope)
        parameter_addresses = addresses(parameter for parameter in module._parameters.values() if parameter is not None)
        self.hook.retag(parameter_addresses, Category.PARAMETER)
        self._subtract_own_time(now_ns() - start + self._call_overhead_ns // 2)

    def _subtract_own_time(self, spent_ns: int) -> None:
        """Subtract presim's own time from host time."""
        self._own_ns += spent_ns
        self.hook.add_own_time(spent_ns)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], *kwargs_and_output: Any) -> None:
        """``kwargs_and_output``: its two values; if the forward pass raised, PyTorch omits kwargs."""
        if torch.compiler.is_compiling():
            return
        start = now_ns()
        self._depth -= 1
        self.hook.leave_scope()
        if self._depth == 0 and len(kwargs_and_output) == 2 and not in_backward():
            self.batch.leave(module, args, kwargs_and_output[0])
            if self.observer:
                self.observer.is_in_model = False
        self._subtract_own_time(now_ns() - start + self._call_overhead_ns // 2)

    def _name(self, module: nn.Module) -> int:
        """Name all modules below an outermost one; a module called by itself is named after its class."""
        if getattr(module, "_is_replica", False):
            for child in module.modules():
                self._name_while_alive(child)
        else:
            self._roots[id(module)] = module
        root = type(module).__name__
        for name, child in module.named_modules():
            self._names.setdefault(id(child), self.hook.scope_id(f"{root}.{name}" if name else root))
            if getattr(child, "batch_first", True) is False:
                self._sequence_first.add(id(child))
        return self._names[id(module)]

    def _name_while_alive(self, module: nn.Module) -> None:
        """Forget the module's name when it is gone, because another may get its id."""
        number = id(module)

        def forget(_: weakref.ref[nn.Module]) -> None:
            self._replicas.pop(number, None)
            self._names.pop(number, None)
            self._sequence_first.discard(number)

        self._replicas[number] = weakref.ref(module, forget)

    def _enter_root(self, module: nn.Module, args: tuple[Any, ...], start_ns: int) -> int:
        """Record a call of an outermost module; ``start_ns`` and the result as for `categorise_blocks`."""
        parameters = list(nn.Module.parameters(module))  # Megatron's DDP uses the attribute names for its own lists
        if self.observer and self._is_observed:
            self.observer.model_called(module, parameters)
            start_ns = now_ns()  # the observer subtracts its own time
        self.batch.enter(module, parameters)
        return self.categorise_blocks(
            start_ns,
            (Category.PARAMETER, map(own_part, parameters)),
            (Category.BUFFER, nn.Module.buffers(module)),
            (Category.INPUT, tensors(args)),
        )

    def categorise_blocks(self, start_ns: int, *named: tuple[Category, Iterable[torch.Tensor]]) -> int:
        """Assign the blocks of these tensors to these categories; returns until when our time is subtracted.

        ``start_ns``: start of our own time. Finding the blocks takes long, so that time is subtracted before the first
        record, which contains the host time so far.
        """
        addresses_by_category = [(category, addresses(tensors)) for category, tensors in named]
        self._subtract_own_time(now_ns() - start_ns)
        for category, block_addresses in addresses_by_category:
            self.hook.retag(block_addresses, category)
        return now_ns()


def addresses(tensors: Iterable[torch.Tensor]) -> array[int]:
    """Addresses of the blocks that hold these tensors; tensors without own memory (meta, empty, sparse) have none."""
    return array("q", (block for tensor in tensors for block in _blocks(tensor)))


def _blocks(tensor: torch.Tensor) -> Iterator[int]:
    for part in _storage_tensors(local_tensor(tensor)):
        if part.is_cuda and part.layout == torch.strided and (address := _address(part)):
            yield address


def _address(tensor: torch.Tensor) -> int:
    """Address of the storage; 0 for tensors without one, such as those that a tracer passes through modules."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0


def in_backward() -> bool:
    """Whether autograd runs on this thread; a forward pass is then a recomputation."""
    return torch._C._current_graph_task_id() != -1


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor's local shard; any other tensor unchanged."""
    return getattr(tensor, "_local_tensor", tensor)


def _storage_tensors(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    """The tensors that hold a tensor's bytes: itself, or those in a wrapper (torchao's FP8 and quantised weights)."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    for name in flatten()[0]:
        yield from _storage_tensors(getattr(tensor, name))
