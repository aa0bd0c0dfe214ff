"""PyTorch's CUDA sanitizer, which finds tensors that a stream uses without waiting for another stream's use.

It observes PyTorch's operators, allocations, streams and events, and works on the emulated device as on a GPU. It
raises at the line that uses the tensor. Its module is imported only on request, because the import alone makes PyTorch
call Python at each event, allocation and synchronisation.
"""

from __future__ import annotations

import sys
from typing import Any

_MODULE = "torch.cuda._sanitizer"


def install() -> None:
    """Enable it in this process."""
    from torch.cuda._sanitizer import enable_cuda_sanitizer

    enable_cuda_sanitizer()


def explain(error: BaseException) -> str:
    """The sanitizer's finding as a clause; empty for any other error."""
    sanitizer: Any = sys.modules.get(_MODULE)
    if sanitizer is None or not isinstance(error, sanitizer.CUDASanitizerErrors) or not error.errors:
        return ""
    conflict: Any = error.errors[0]
    now, before = conflict.current_access, conflict.previous_access
    suffix = f", and {len(error.errors) - 1} more such uses" if len(error.errors) > 1 else ""
    return (
        f"{_operator(now.operator)} {_verb(now)} a tensor on stream {now.stream} without waiting for "
        f"{_operator(before.operator)}, which {_verb(before)} it on stream {before.stream}{suffix}"
    )


def _operator(schema: Any) -> str:
    return str(getattr(schema, "name", schema)).partition("(")[0] or "an operator"


def _verb(access: Any) -> str:
    return "writes" if access.type.name == "WRITE" else "reads"
