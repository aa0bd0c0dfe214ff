"""Memory shared by the GPUs of a group when only one of them is present.

Replaces what PyTorch's fused operators use of ``torch._C._distributed_c10d._SymmetricMemory``. Another rank's memory is
assumed to hold what this one writes at the same place. Reading it is a copy between two GPUs, by a copy engine over the
link between them. A barrier is a kernel on one word per rank: the other ranks are assumed to be as far as this one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.distributed_c10d import _resolve_process_group

from presim.capture.adapters.device_memory import RUNTIME, DeviceMemory


class SharedMemory:
    """A workspace of one group; ``size`` in bytes."""

    def __init__(self, group_name: Any, size: int) -> None:
        group: Any = _resolve_process_group(group_name)
        self.rank, self.world_size, self.size = group.rank(), group.size(), size
        self._signals = 4 * self.world_size  # bytes
        self._memory = DeviceMemory(size + self._signals, "memory that GPUs share")
        address = self._memory.address.value
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 2}
        self._bytes = torch.as_tensor(self, device="cuda")

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        """A tensor of ``sizes`` in a rank's memory, at an offset in elements."""
        begin = storage_offset * dtype.itemsize
        part = self._bytes[begin : begin + math.prod(sizes) * dtype.itemsize].view(dtype).view(tuple(sizes))
        return part if rank == self.rank else part.as_subclass(_Remote)

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """Barrier on the current stream."""
        address = self._bytes.data_ptr() + self.size
        _call("cudaMemsetAsync", ctypes.c_void_p(address), 0, ctypes.c_size_t(self._signals), _stream())


class _Remote(torch.Tensor):
    """Memory of another GPU."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.copy_ and isinstance(args[1], cls):
            return _copy_from_peer(args[0], args[1])
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]  # torch's


def _copy_from_peer(into: torch.Tensor, remote: torch.Tensor) -> torch.Tensor:
    device, size = into.get_device(), remote.numel() * remote.element_size()
    addresses = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (into, remote))
    peer_device = (device + 1) % torch.cuda.device_count()
    _call(
        "cudaMemcpyPeerAsync", next(addresses), device, next(addresses), peer_device, ctypes.c_size_t(size), _stream()
    )
    return into


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def _call(name: str, *arguments: Any) -> None:
    if status := getattr(ctypes.CDLL(RUNTIME), name)(*arguments):
        raise RuntimeError(f"{name} on shared GPU memory failed: CUDA error {status}")


_workspaces: dict[str, SharedMemory] = {}


def workspace(group_name: str, min_size: int) -> SharedMemory:
    """Same as ``get_symm_mem_workspace``: the group's workspace, enlarged if too small."""
    memory = _workspaces.get(group_name)
    if memory is None or memory.size < min_size:
        memory = _workspaces[group_name] = SharedMemory(group_name, min_size)
    return memory
