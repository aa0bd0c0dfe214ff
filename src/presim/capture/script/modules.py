"""Tell the recorder which module runs, and what its tensors are.

Global forward hooks name the module whose forward runs; backward work finds its module through autograd's sequence
numbers (see shim/hook), so no tensor gets a hook and in-place operations stay as they are. Categories of memory
follow TorchSim, appendix D: parameters and buffers are named when their module runs, inputs when the outermost one
does; gradients and optimizer states around the optimizer's step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from presim.capture.script.hook import Hook
from presim.capture.script.own_clock import now_ns
from presim.capture.script.parameters import elements, model_elements, own_part
from presim.trace.schema import Category

_ROUNDS, _TIMED_CALLS = 5, 100


class ModuleScopes:
    """Installs the hooks; collects what the outermost modules say about the step."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.tokens = 0
        self.samples = 0
        self.steps_with_input = 0  # a step that replays a CUDA graph calls no module
        self.parameters = 0
        self.parameters_local = 0
        self._names: dict[int, int] = {}  # id(module) -> scope id
        self._roots: dict[int, nn.Module] = {}  # kept alive, so that ids stay unique
        self._depth = 0
        self._calling_ns = 0  # what PyTorch spends to call both hooks of a module
        self._counted_ns = 0  # what the hooks themselves have spent
        self._embeds = False  # that module looks tokens up
        self._input_before = 0  # tokens and samples when the last step ended
        self._first: tuple[int, int] | None = None  # tokens and samples of the first step, while no other had any
        self._counted = 0  # id of the outermost module with most parameters: its inputs are the batch
        self._trains = False  # that module ran where gradients are wanted: what runs without them evaluates

    def install(self) -> None:
        """Hooks on every module of the process, present and future.

        What a module's call costs more with them is measured here, so that it can be left out of host time.
        """
        bare = self._time_calls()
        module_hooks.register_module_forward_pre_hook(self._enter)
        module_hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        self._calling_ns = max(0, self._time_calls() - bare)
        self.parameters = self.parameters_local = self._counted = 0
        self._count_anew()

    def _time_calls(self) -> int:
        """Nanoseconds of one call of a module that does nothing, without what the hooks count as theirs.

        The least of several rounds: others may run on this CPU meanwhile.
        """
        module = nn.Identity()
        rounds = []
        for _ in range(_ROUNDS):
            start, counted = now_ns(), self._counted_ns
            for _ in range(_TIMED_CALLS):
                module(None)
            rounds.append(now_ns() - start - (self._counted_ns - counted))
        return min(rounds) // _TIMED_CALLS

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        start = now_ns()
        self._enter_module(module, args)
        self._leave_out(now_ns() - start)

    def _leave_out(self, spent_ns: int) -> None:
        """Time of ours is none of the script's."""
        self._counted_ns += spent_ns
        self.hook.add_own_time(spent_ns + self._calling_ns // 2)

    def _enter_module(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        scope = self._names.get(id(module))
        if scope is None:
            scope = self._name(module)
        if self._depth == 0 and not in_backward():
            self._enter_root(module, args)
        self._depth += 1
        self.hook.enter_scope(scope)
        for parameter in module._parameters.values():
            if parameter is not None:
                self.tag(parameter, Category.PARAMETER)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """``rest`` is (kwargs, output); where the forward raised, PyTorch leaves the kwargs out."""
        if torch.compiler.is_compiling():
            return
        start = now_ns()
        self._depth -= 1
        self.hook.leave_scope()
        if self._depth == 0 and id(module) == self._counted and len(rest) == 2 and not in_backward():
            self._count_input(args, rest[0])
        self._leave_out(now_ns() - start)

    def _name(self, module: nn.Module) -> int:
        """Names all modules below the one that runs first; a module met alone is called after its class."""
        self._roots[id(module)] = module
        root = type(module).__name__
        for name, child in module.named_modules():
            self._names.setdefault(id(child), self.hook.scope_id(f"{root}.{name}" if name else root))
        return self._names[id(module)]

    def _enter_root(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        parameters = list(nn.Module.parameters(module))  # Megatron's DDP gives these names to lists of its own
        total = model_elements(module)
        own = [own_part(parameter) for parameter in parameters]
        if total > self.parameters or (total == self.parameters and self._trains_at_last(module)):
            self._counted = id(module)
            self._embeds = any(type(part).__name__.endswith("Embedding") for part in module.modules())
            self.parameters = total
            self.parameters_local = sum(elements(tensor) for tensor in own)
            self._trains = False
            self._count_anew()
        for tensor in own:
            self.tag(tensor, Category.PARAMETER)
        for buffer in nn.Module.buffers(module):
            self.tag(buffer, Category.BUFFER)
        for tensor in _tensors(args):
            self.tag(tensor, Category.INPUT)

    def _trains_at_last(self, module: nn.Module) -> bool:
        """Whether this is what a program trains that had another wrapper of the same model evaluate first."""
        return torch.is_grad_enabled() and not self._trains and id(module) != self._counted

    def _count_anew(self) -> None:
        self.tokens = self.samples = self.steps_with_input = self._input_before = 0
        self._first = None

    def _count_input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tokens and samples of one call: of its first integer tensor [batch, sequence], else its first tensor.

        Of a program that trains, the calls that train: an evaluation between two steps is no part of their batch.
        """
        if torch.is_grad_enabled() and not self._trains:
            self._trains = True
            self._count_anew()
        if self._trains and not torch.is_grad_enabled():
            return
        tensors = [tensor for tensor in (*_tensors(args), *_tensors(kwargs.values())) if tensor.dim() > 0]
        ids = [tensor for tensor in tensors if tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32)]
        ids = ids if self._embeds else []  # a graph's edges, too, are two rows of integers
        if tensors:
            self.samples += (ids or tensors)[0].shape[0]
        if ids:
            self.tokens += ids[0].numel()

    def step_ends(self) -> None:
        """Note whether the batch was seen in this step.

        The first one's is forgotten when another had one: in it a pipeline's schedule also runs its stages for shapes.
        """
        if self.samples + self.tokens == self._input_before:
            return
        if self._first is not None:
            self.tokens, self.samples = self.tokens - self._first[0], self.samples - self._first[1]
            self._first = None
        else:
            self.steps_with_input += 1
            if self.steps_with_input == 1:
                self._first = self.tokens, self.samples
        self._input_before = self.samples + self.tokens

    def tag(self, tensor: torch.Tensor, category: Category) -> None:
        """The block that holds this tensor is of a category; tensors without one (meta, empty, sparse) are left out."""
        for part in _held(local_tensor(tensor)):
            if part.is_cuda and part.layout == torch.strided and (address := _address(part)):
                self.hook.retag(address, int(category))


def _address(tensor: torch.Tensor) -> int:
    """Of its storage; 0 for what a tracer passes through modules, which has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0


def in_backward() -> bool:
    """Whether autograd runs on this thread: a forward is then a recomputation."""
    return torch._C._current_graph_task_id() != -1


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A DTensor's own shard; any other tensor as it is."""
    return getattr(tensor, "_local_tensor", tensor)


def _held(tensor: torch.Tensor) -> Iterable[torch.Tensor]:
    """What holds a tensor's bytes: itself, or the tensors inside a wrapper (torchao's FP8 and quantised weights)."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    for name in flatten()[0]:
        yield from _held(getattr(tensor, name))


def _tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
