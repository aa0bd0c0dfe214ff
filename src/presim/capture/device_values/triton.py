"""Values that Triton kernels write: small control values are emulated by kernel name, the rest comes from policies.

PyTorch's dispatcher does not see these kernels, so their effect on values is given here, by name. An entry is a
function over CPU tensors::

    @emulates("_count_kernel", writes=("counts_ptr",))
    def count(a):
        a.counts_ptr.copy_(torch.bincount(a.ids_ptr, minlength=a.num_experts))

``a`` has the kernel's parameters by name: tensors as CPU tensors over the emulated device's memory, numbers unchanged.
It runs after the launch if all tensors that the kernel reads have known values; otherwise a policy provides the
outputs, as for an operator's results.
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

from presim.capture.device_values.policies import DeviceValueOrigin
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
    """The emulation of one kernel."""

    compute: Callable[[Any], None]
    writes: frozenset[str]  # parameters that it writes
    ignores: frozenset[str]  # parameters of any size that keep their values
    unless: str  # a parameter; if true, the values are left unchanged
    updates: frozenset[
        str
    ]  # written parameters that must be known before, because the kernel reads them or leaves parts unchanged


TABLE: dict[str, Emulation] = {}


def emulates(
    kernel: str,
    *,
    writes: tuple[str, ...] = (),
    updates: tuple[str, ...] = (),
    ignores: tuple[str, ...] = (),
    unless: str = "",
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function that emulates the Triton kernel of that name."""

    def enter(compute: Callable[[Any], None]) -> Callable[[Any], None]:
        TABLE[kernel] = Emulation(compute, frozenset(writes + updates), frozenset(ignores), unless, frozenset(updates))
        return compute

    return enter


def after_launch(hook: Hook, name: str, parameters: dict[str, Any], written: Iterable[str]) -> None:
    """Update the values after a launch; ``mark_written``: the parameters written by a kernel without an emulation.

    For a kernel captured into a graph, this happens at each replay, with the values of that replay.
    """
    if torch.cuda.is_current_stream_capturing():  # graphs must not keep the parameters alive
        locations = {key: TensorLocation.of(value) if is_tensor(value) else value for key, value in parameters.items()}
        _at_replay(hook, lambda: _update(hook, name, locations, written))
    else:
        _update(hook, name, parameters, written)


def _update(hook: Hook, name: str, parameters: dict[str, Any], written: Iterable[str]) -> None:
    emulation = TABLE.get(name)
    if emulation is not None and (parameters.get(emulation.unless) or _emulate(hook, emulation, parameters)):
        return
    loss = "loss" in name and "backward" not in name  # generated kernels are named after the operators they fuse
    for parameter in emulation.writes if emulation is not None else written:
        tensor = parameters.get(parameter)
        if tensor is None or not is_tensor(tensor) or tensor.dtype not in _SCALAR_TYPES:
            continue
        if (
            tensor.dtype == torch.bool and "dropout" in name
        ):  # as large as the tensor dropped from: no policy provides it
            hook.set_origin(tensor.data_ptr(), host_bytes(tensor), int(DeviceValueOrigin.UNKNOWN))
            continue
        hook.mark_written(
            tensor.data_ptr(), _elements(tensor), _SCALAR_TYPES[tensor.dtype], loss and tensor.numel() == 1
        )


def apply_loss_policy(hook: Hook, tensor: torch.Tensor, terms: int) -> None:
    """Let a policy provide a loss (the sum of ``terms`` losses) written by a function, unless its value is computed."""
    locations = TensorLocation.of(tensor)

    def answer() -> None:
        if hook.origin_of(locations.address, host_bytes(locations)) in (
            DeviceValueOrigin.COMPUTED,
            DeviceValueOrigin.LOSS,
        ):
            return
        hook.mark_written(locations.address, _elements(locations), _SCALAR_TYPES[locations.dtype], True)
        if terms > 1 and _is_small(hook, locations):
            host_view(locations).mul_(terms)

    if locations.dtype not in _SCALAR_TYPES or not tensor.numel():
        return
    update_values(hook, answer)


def update_values(hook: Hook, update: Callable[[], None]) -> None:
    """Update the values that a launch writes: now, or at each replay of the CUDA graph that is being captured."""
    _at_replay(hook, update) if torch.cuda.is_current_stream_capturing() else update()


_replayed: dict[int, Callable[[], None]] = {}  # key -> update to run at replays
_numbers = itertools.count()


def _run_replay(key: int) -> None:
    _replayed[key]()


def _drop_replay(key: int) -> None:
    _replayed.pop(key, None)


_RUN_REPLAY, _DROP_REPLAY = OnReplay(_run_replay), OnReplay(_drop_replay)  # must stay alive: graphs call them


def _at_replay(hook: Hook, update: Callable[[], None]) -> None:
    key = next(_numbers)
    _replayed[key] = update
    hook.at_replay(torch.cuda.current_stream().cuda_stream, _RUN_REPLAY, _DROP_REPLAY, key)


@dataclasses.dataclass(frozen=True)
class TensorLocation:
    """The location of a tensor, without keeping its memory alive."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    is_cuda: bool

    @classmethod
    def of(cls, tensor: Any) -> TensorLocation:
        """The location of a tensor or tensor-like object."""
        return cls(tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.is_cuda)

    def data_ptr(self) -> int:
        """Same as `torch.Tensor.data_ptr`; the following methods likewise."""
        return self.address

    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self.strides

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def element_size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether the values are floats."""
        return self.dtype.is_floating_point


def _emulate(hook: Hook, emulation: Emulation, parameters: dict[str, Any]) -> bool:
    tensors = {name: v for name, v in parameters.items() if is_tensor(v) and name not in emulation.ignores}
    origin = 1
    for name, tensor in tensors.items():
        if not _is_small(hook, tensor):
            return False
        if name in emulation.writes and name not in emulation.updates:
            continue
        tensor_origin = hook.origin_of(tensor.data_ptr(), host_bytes(tensor)) if tensor.is_cuda else 1
        if not tensor_origin:
            return False
        origin = max(origin, tensor_origin)
    emulation.compute(SimpleNamespace(**parameters | {name: host_view(tensor) for name, tensor in tensors.items()}))
    for name in emulation.writes & tensors.keys():
        hook.set_origin(tensors[name].data_ptr(), host_bytes(tensors[name]), origin)
    return True


def host_view(tensor: torch.Tensor | TensorLocation) -> torch.Tensor:
    """A CPU tensor over the same memory; the emulated device's addresses are host addresses."""
    if not tensor.numel():
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)
    if isinstance(tensor, torch.Tensor) and not tensor.is_cuda:
        return tensor
    memory = (ctypes.c_char * host_bytes(tensor)).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())


def is_tensor(value: Any) -> bool:
    """Whether a kernel argument is a tensor or tensor-like."""
    return hasattr(value, "is_cuda") and hasattr(value, "stride")


def _elements(tensor: torch.Tensor | TensorLocation) -> int:
    """Elements from the first to the last in memory."""
    if not tensor.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def host_bytes(tensor: torch.Tensor | TensorLocation) -> int:
    """Bytes from the first element to the last."""
    return _elements(tensor) * tensor.element_size()


def _is_small(hook: Hook, tensor: torch.Tensor | TensorLocation) -> bool:
    return bool(hook.is_small(not tensor.is_floating_point(), _elements(tensor), tensor.element_size()))
