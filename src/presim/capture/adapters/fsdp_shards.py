"""Create FSDP2's shards of a parameter only when they are accessed.

``fully_shard`` cuts every parameter into one view per rank of the mesh, and uses two of them: rank 0's and its own.
Over 16,384 ranks that took 57 of the 66 s of CPU time of a rank in the 8B example, and minutes over 100,352 ranks. It
happens before the first step and launches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from presim.capture.script.after_import import when_imported


def install() -> None:
    """Install for FSDP2."""
    when_imported("torch.distributed.fsdp._fully_shard._fsdp_param", _shard_lazily)


def _shard_lazily(module: Any) -> None:
    def chunk(tensor: Any, num_chunks: int, dim: int) -> Sequence[Any]:
        return Shards(tensor, num_chunks, dim)

    if hasattr(module, "_chunk_with_empty"):
        module._chunk_with_empty = chunk


class Shards(Sequence[Any]):
    """Same as the result of ``_chunk_with_empty``: ``torch.chunk``'s views, then empty tensors up to ``count``."""

    def __init__(self, tensor: Any, count: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, count, dim
        self._length = tensor.size(dim)
        self._rows_per_shard = max(-(-self._length // count), 1)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[shard_index] for shard_index in range(self._count)[index]]
        shard_index = range(self._count)[index]  # IndexError as for a list; negative indices count from the end
        start = shard_index * self._rows_per_shard
        if start < self._length or shard_index == 0:
            return self._tensor.narrow(self._dim, start, min(self._rows_per_shard, self._length - start))
        return self._tensor.new_empty(0)
