"""Tell the recorder which module runs, and what its tensors are.

Global forward hooks name the module whose forward runs; backward work finds its module through autograd's sequence
numbers (see shim/hook), so no tensor gets a hook and in-place operations stay as they are. Categories of memory
follow TorchSim, appendix D: parameters and buffers are named when their module runs, inputs when the outermost one
does; gradients and optimizer states around the optimizer's step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from presim.capture.script.batch import Batch, tensors
from presim.capture.script.hook import Hook
from presim.capture.script.parameters import own_part
from presim.capture.script.real_clock import now_ns
from presim.trace.schema import Category

_ROUNDS, _TIMED_CALLS = 5, 100


class ModuleScopes:
    """Installs the hooks; collects what the outermost modules say about the step."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.batch = Batch()
        self._names: dict[int, int] = {}  # id(module) -> scope id
        self._roots: dict[int, nn.Module] = {}  # kept alive, so that ids stay unique
        self._depth = 0
        self._calling_ns = 0  # what PyTorch spends to call both hooks of a module
        self._counted_ns = 0  # what the hooks themselves have spent

    def install(self) -> None:
        """Hooks on every module of the process, present and future.

        What a module's call costs more with them is measured here, so that it can be left out of host time.
        """
        bare = self._time_calls()
        module_hooks.register_module_forward_pre_hook(self._enter)
        module_hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        self._calling_ns = max(0, self._time_calls() - bare)
        self.batch = Batch()  # without the module that was timed

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
        scope = self._names.get(id(module))
        if scope is None:
            scope = self._name(module)
        if self._depth == 0 and not in_backward():
            start = self._enter_root(module, args, start)
        self._depth += 1
        self.hook.enter_scope(scope)
        own = addresses(parameter for parameter in module._parameters.values() if parameter is not None)
        self.hook.retag(own, Category.PARAMETER)
        self._leave_out(now_ns() - start + self._calling_ns // 2)

    def _leave_out(self, spent_ns: int) -> None:
        """Time of ours is none of the script's."""
        self._counted_ns += spent_ns
        self.hook.add_own_time(spent_ns)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """``rest`` is (kwargs, output); where the forward raised, PyTorch leaves the kwargs out."""
        if torch.compiler.is_compiling():
            return
        start = now_ns()
        self._depth -= 1
        self.hook.leave_scope()
        if self._depth == 0 and len(rest) == 2 and not in_backward():
            self.batch.leave(module, args, rest[0])
        self._leave_out(now_ns() - start + self._calling_ns // 2)

    def _name(self, module: nn.Module) -> int:
        """Names all modules below the one that runs first; a module met alone is called after its class."""
        self._roots[id(module)] = module
        root = type(module).__name__
        for name, child in module.named_modules():
            self._names.setdefault(id(child), self.hook.scope_id(f"{root}.{name}" if name else root))
        return self._names[id(module)]

    def _enter_root(self, module: nn.Module, args: tuple[Any, ...], start_ns: int) -> int:
        """``start_ns``: since when this call is ours; returns until when it is left out."""
        parameters = list(nn.Module.parameters(module))  # Megatron's DDP gives these names to lists of its own
        self.batch.enter(module, parameters)
        return self.name_blocks(
            start_ns,
            (Category.PARAMETER, map(own_part, parameters)),
            (Category.BUFFER, nn.Module.buffers(module)),
            (Category.INPUT, tensors(args)),
        )

    def name_blocks(self, start_ns: int, *named: tuple[Category, Iterable[torch.Tensor]]) -> int:
        """The blocks that hold these tensors are of these categories; returns until when our time is left out.

        ``start_ns``: since when it is our time. To find the blocks takes long and is left out before the first of the
        records, which shows the script's time as far as it is known by then.
        """
        found = [(category, addresses(held)) for category, held in named]
        self._leave_out(now_ns() - start_ns)
        for category, where in found:
            self.hook.retag(where, category)
        return now_ns()


def addresses(held: Iterable[torch.Tensor]) -> array[int]:
    """Of the blocks that hold these tensors; none of what has no memory of its own (meta, empty, sparse)."""
    return array("q", (block for tensor in held for block in _blocks(tensor)))


def _blocks(tensor: torch.Tensor) -> Iterator[int]:
    for part in _held(local_tensor(tensor)):
        if part.is_cuda and part.layout == torch.strided and (address := _address(part)):
            yield address


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
