"""Large weights that a script makes on the CPU are left as the system hands them out: zeros that take no memory.

A model of 7B parameters that is initialised on the CPU before it goes to the device is 28 GB of random numbers in the
process of each rank, which nobody looks at: the emulated device computes nothing with them. So the functions that fill
tensors in place with random numbers pass over large ones, and casting a module on the CPU passes over what was left
so. What is made by ``torch.randn`` and its like, batches for example, is real.

Their pages are mapped anew without a promise of memory (MAP_NORESERVE): many ranks with many gigabytes each are more
than the system would promise where it keeps count of that (vm.overcommit_memory=2).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import Any

import torch

LARGE = 4 << 20  # bytes: below, the heap's pages may have been in use before, and filling takes milliseconds
_RANDOM = ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_", "bernoulli_", "random_")
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000  # Linux's numbers, which Python 3.11 does not name

_mmap: Any = ctypes.CDLL(None).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


class CpuWeights:
    """Counts what it passed over."""

    def __init__(self) -> None:
        self.bytes = 0

    def install(self) -> None:
        """Before the script runs."""
        for name in _RANDOM:
            setattr(torch.Tensor, name, self._pass_over(getattr(torch.Tensor, name)))
        init: Any = torch.nn.init
        init._no_grad_trunc_normal_ = self._pass_over(init._no_grad_trunc_normal_)
        self._cast_modules()

    def _pass_over(self, fill: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fill)
        def fill_small(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_large(tensor):
                return fill(tensor, *args, **kwargs)
            if not _is_unfilled(tensor):
                self.bytes += tensor.nbytes
                _leave_unfilled(tensor)
            return tensor

        return fill_small

    def _cast_modules(self) -> None:
        """``module.to(torch.bfloat16)`` writes a second copy of each weight."""
        module: Any = torch.nn.Module
        apply = module._apply

        @functools.wraps(apply)
        def apply_to_filled(self: Any, fn: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
            return apply(self, functools.partial(_cast, fn), *args, **kwargs)

        module._apply = apply_to_filled


def _cast(fn: Callable[[Any], Any], tensor: Any) -> Any:
    """What fn makes of a tensor, without reading an unfilled one where the result stays on the CPU."""
    if not (_is_large(tensor) and _is_unfilled(tensor)):
        return fn(tensor)
    kind = fn(torch.empty((0,) * max(1, tensor.dim()), dtype=tensor.dtype))
    if kind.device.type != "cpu" or kind.dtype == tensor.dtype:
        return fn(tensor)
    result = torch.empty(tensor.shape, dtype=kind.dtype)
    _leave_unfilled(result)
    return result


def _leave_unfilled(tensor: Any) -> None:
    """Zeros from now on, in memory that is neither taken nor promised."""
    tensor.untyped_storage().presim_unfilled = True
    if not tensor.is_contiguous() or tensor.is_shared():
        return
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    # If it is refused, the pages are as they were.
    _mmap(first, end - first, protection, flags | _MAP_FIXED | _MAP_NORESERVE, -1, 0)


def _is_large(tensor: Any) -> bool:
    return type(tensor) in _PLAIN and tensor.device.type == "cpu" and tensor.nbytes >= LARGE


def _is_unfilled(tensor: Any) -> bool:
    return getattr(tensor.untyped_storage(), "presim_unfilled", False)
