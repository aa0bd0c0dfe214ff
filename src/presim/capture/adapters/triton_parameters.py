"""What a Triton kernel reads and writes, by the names of its parameters.

A kernel that torch.compile generated has names that say so. Of one that somebody wrote, what is called an output is
written; where nothing is, all its tensors are taken to be read, and what it writes stays unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_BOTH = "in_out_ptr"
GENERATED = ("out_ptr", _BOTH)  # how names begin of what a generated kernel writes
_OUTPUTS = ("out", "o_")  # and of outputs of others: output_ptr, out_ptr, O_KEY; but not of gradients of outputs

Tensors = Sequence[tuple[str, Any]]  # by the name of the parameter


def read_and_written(tensors: Tensors) -> tuple[list[Any], list[Any]]:
    """Those that a kernel reads, and those that it writes; what it updates is in both."""
    read = [tensor for name, tensor in tensors if not _is_output(name)]
    return read, [tensor for name, tensor in tensors if _is_output(name) or name.startswith(_BOTH)]


def each_once(tensors: Tensors) -> list[tuple[str, Any]]:
    """Without those that are handed in again by another name: they move once."""
    found: dict[Any, tuple[str, Any]] = {}
    for name, tensor in tensors:
        found.setdefault((tensor.data_ptr(), tensor.shape, tensor.dtype), (name, tensor))
    return list(found.values())


def _is_output(name: str) -> bool:
    return name.lower().startswith(_OUTPUTS) and "grad" not in name
