"""Device memory that a library allocates itself, outside PyTorch's allocator."""

from __future__ import annotations

import ctypes

import torch

RUNTIME = "libcudart.so.13"


class DeviceMemory:
    """A block of ``size`` bytes on the current device, never freed."""

    def __init__(self, size: int, purpose: str) -> None:
        runtime, self.address = ctypes.CDLL(RUNTIME), ctypes.c_void_p()
        if size and runtime.cudaMalloc(ctypes.byref(self.address), ctypes.c_size_t(size)):
            raise torch.OutOfMemoryError(f"CUDA out of memory: {purpose} takes {size / 2**30:.2f} GiB")
