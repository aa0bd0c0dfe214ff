"""Values that Triton kernels write: small control values are computed by name, the rest is answered or unknown.

PyTorch's dispatcher does not see these kernels, so what they do to values is said here, by name. An entry is one
function over CPU tensors::

    @emulates("_count_kernel", writes=("counts_ptr",))
    def count(a):
        a.counts_ptr.copy_(torch.bincount(a.ids_ptr, minlength=a.num_experts))

``a`` has the kernel's parameters by their own names: tensors as CPU tensors over the emulated device's memory, numbers
as they were passed. It runs after the launch where all tensors are known that the kernel reads; otherwise what it
writes is answered by a policy, as an operator's results are.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch

from presim.capture.device_values.policies import Origin
from presim.capture.script.hook import Hook, OnReplay

_SCALAR_TYPES = {  # c10::ScalarType
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}


@dataclasses.dataclass(frozen=True)
class Emulation:
    """How a kernel's values come about."""

    compute: Callable[[Any], None]
    writes: frozenset[str]  # parameters
    ignores: frozenset[str]  # parameters that may be of any size, and keep the values they have
    unless: str  # a parameter; where it is true, nothing is said of the values
    updates: frozenset[str]  # those among them that have to be known before, because it reads them or leaves parts


TABLE: dict[str, Emulation] = {}


def emulates(
    kernel: str,
    *,
    writes: tuple[str, ...] = (),
    updates: tuple[str, ...] = (),
    ignores: tuple[str, ...] = (),
    unless: str = "",
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Enter a function into the table, as the values of the Triton kernel of that name."""

    def enter(compute: Callable[[Any], None]) -> Callable[[Any], None]:
        TABLE[kernel] = Emulation(compute, frozenset(writes + updates), frozenset(ignores), unless, frozenset(updates))
        return compute

    return enter


def after_launch(hook: Hook, name: str, parameters: dict[str, Any], written: Iterable[str]) -> None:
    """Bring the values up to date: ``written`` are the parameters of a kernel that no entry knows.

    Of a kernel that is captured into a graph it is done at each replay, with the values of that replay.
    """
    if torch.cuda.is_current_stream_capturing():
        placed = {key: Placed.of(value) if is_tensor(value) else value for key, value in parameters.items()}
        _at_replay(hook, lambda: _update(hook, name, placed, written))
    else:
        _update(hook, name, parameters, written)


def _update(hook: Hook, name: str, parameters: dict[str, Any], written: Iterable[str]) -> None:
    emulation = TABLE.get(name)
    if emulation is not None and (parameters.get(emulation.unless) or _emulate(hook, emulation, parameters)):
        return
    loss = "loss" in name and "backward" not in name  # generated kernels are named after what they fuse
    for parameter in emulation.writes if emulation is not None else written:
        tensor = parameters.get(parameter)
        if tensor is None or not is_tensor(tensor) or tensor.dtype not in _SCALAR_TYPES:
            continue
        if tensor.dtype == torch.bool and "dropout" in name:  # as large as what is dropped from: nobody answers for it
            hook.know(tensor.data_ptr(), host_bytes(tensor), int(Origin.UNKNOWN))
            continue
        hook.written(tensor.data_ptr(), _elements(tensor), _SCALAR_TYPES[tensor.dtype], loss and tensor.numel() == 1)


def answer_loss(hook: Hook, tensor: torch.Tensor, terms: int) -> None:
    """What a function has written that is a loss (the sum of ``terms`` of them), where nobody knows it better."""
    placed = Placed.of(tensor)

    def answer() -> None:
        if hook.origin_of(placed.address, host_bytes(placed)) in (Origin.COMPUTED, Origin.LOSS):
            return
        hook.written(placed.address, _elements(placed), _SCALAR_TYPES[placed.dtype], True)
        if terms > 1 and _is_small(hook, placed):
            host_view(placed).mul_(terms)

    if placed.dtype not in _SCALAR_TYPES or not tensor.numel():
        return
    _at_replay(hook, answer) if torch.cuda.is_current_stream_capturing() else answer()


_replayed: dict[int, Callable[[], None]] = {}  # what is to be done at replays, by a number
_numbers = itertools.count()


def _again(key: int) -> None:
    _replayed[key]()


def _gone(key: int) -> None:
    _replayed.pop(key, None)


_AGAIN, _GONE = OnReplay(_again), OnReplay(_gone)  # kept alive: graphs call them


def _at_replay(hook: Hook, update: Callable[[], None]) -> None:
    key = next(_numbers)
    _replayed[key] = update
    hook.at_replay(torch.cuda.current_stream().cuda_stream, _AGAIN, _GONE, key)


@dataclasses.dataclass(frozen=True)
class Placed:
    """Where a tensor lies, without keeping its memory from being used again."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    is_cuda: bool

    @classmethod
    def of(cls, tensor: Any) -> Placed:
        """Of a tensor, or what passes for one."""
        return cls(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.is_cuda)

    def data_ptr(self) -> int:
        """As a tensor has it; so are those that follow."""
        return self.address

    def stride(self) -> tuple[int, ...]:
        """By dimension, in elements."""
        return self.strides

    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Bytes."""
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether its values are floats."""
        return self.dtype.is_floating_point


def _emulate(hook: Hook, emulation: Emulation, parameters: dict[str, Any]) -> bool:
    tensors = {name: v for name, v in parameters.items() if is_tensor(v) and name not in emulation.ignores}
    origin = 1
    for name, tensor in tensors.items():
        if not _is_small(hook, tensor):
            return False
        if name in emulation.writes and name not in emulation.updates:
            continue
        found = hook.origin_of(tensor.data_ptr(), host_bytes(tensor)) if tensor.is_cuda else 1
        if not found:
            return False
        origin = max(origin, found)
    emulation.compute(SimpleNamespace(**parameters | {name: host_view(tensor) for name, tensor in tensors.items()}))
    for name in emulation.writes & tensors.keys():
        hook.know(tensors[name].data_ptr(), host_bytes(tensors[name]), origin)
    return True


def host_view(tensor: torch.Tensor | Placed) -> torch.Tensor:
    """A CPU tensor over the same memory; a device address is a host address here."""
    if not tensor.numel():
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)
    if isinstance(tensor, torch.Tensor) and not tensor.is_cuda:
        return tensor
    memory = (ctypes.c_char * host_bytes(tensor)).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())


def is_tensor(value: Any) -> bool:
    """Whether an argument of a kernel is a tensor, or passes for one."""
    return hasattr(value, "is_cuda") and hasattr(value, "stride")


def _elements(tensor: torch.Tensor | Placed) -> int:
    """From the first to the last."""
    if not tensor.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def host_bytes(tensor: torch.Tensor | Placed) -> int:
    """Bytes from its first element to its last."""
    return _elements(tensor) * tensor.element_size()


def _is_small(hook: Hook, tensor: torch.Tensor | Placed) -> bool:
    return bool(hook.is_small(not tensor.is_floating_point(), _elements(tensor), tensor.element_size()))
