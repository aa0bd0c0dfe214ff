"""Leave large weights that a script creates on the CPU as zero pages, which take no memory.

Initialising a 7B model on the CPU before moving it to the device would mean 28 GB of random numbers in each rank's
process. The emulated device does not compute with them. So the in-place random fill functions skip large tensors, and
casting a module on the CPU skips tensors that were left unfilled. Tensors from ``torch.randn`` and similar functions,
such as batches, hold real values.

The pages are remapped without reserving memory (MAP_NORESERVE): with vm.overcommit_memory=2, the system would refuse to
commit many gigabytes for each of many ranks.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import Any

import torch

LARGE = 4 << 20  # bytes; smaller blocks may be reused heap pages, and filling them takes milliseconds
_RANDOM = ("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_", "geometric_", "bernoulli_", "random_")
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000  # Linux constants that Python 3.11 does not define

_mmap: Any = ctypes.CDLL(None).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


class CpuWeights:
    """Skips filling large CPU tensors and counts the bytes skipped."""

    def __init__(self) -> None:
        self.bytes = 0

    def install(self) -> None:
        """Install before the script runs."""
        for name in _RANDOM:
            setattr(torch.Tensor, name, self._skip_large(getattr(torch.Tensor, name)))
        init: Any = torch.nn.init
        init._no_grad_trunc_normal_ = self._skip_large(init._no_grad_trunc_normal_)
        self._cast_modules()

    def _skip_large(self, fill: Callable[..., Any]) -> Callable[..., Any]:
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
        """Skip the copy that ``module.to(torch.bfloat16)`` makes of each weight."""
        module: Any = torch.nn.Module
        apply = module._apply

        @functools.wraps(apply)
        def apply_to_filled(self: Any, fn: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
            return apply(self, functools.partial(_cast, fn), *args, **kwargs)

        module._apply = apply_to_filled


def _cast(fn: Callable[[Any], Any], tensor: Any) -> Any:
    """Apply ``fn`` to a tensor, without reading an unfilled one if the result stays on the CPU."""
    if not (_is_large(tensor) and _is_unfilled(tensor)):
        return fn(tensor)
    kind = fn(torch.empty((0,) * max(1, tensor.dim()), dtype=tensor.dtype))
    if kind.device.type != "cpu" or kind.dtype == tensor.dtype:
        return fn(tensor)
    result = torch.empty(tensor.shape, dtype=kind.dtype)
    _leave_unfilled(result)
    return result


def _leave_unfilled(tensor: Any) -> None:
    """Make the tensor zero, in pages that are neither resident nor reserved."""
    tensor.untyped_storage().presim_unfilled = True
    if not tensor.is_contiguous() or tensor.is_shared():
        return
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    # If this is refused, the pages keep their content.
    _mmap(first, end - first, protection, flags | _MAP_FIXED | _MAP_NORESERVE, -1, 0)


def _is_large(tensor: Any) -> bool:
    return type(tensor) in _PLAIN and tensor.device.type == "cpu" and tensor.nbytes >= LARGE


def _is_unfilled(tensor: Any) -> bool:
    return getattr(tensor.untyped_storage(), "presim_unfilled", False)
