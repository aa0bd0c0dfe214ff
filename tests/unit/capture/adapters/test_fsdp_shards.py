"""Creating FSDP2's shards on access."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.capture.adapters.fsdp_shards import Shards, _shard_lazily


@dataclasses.dataclass(frozen=True)
class Rows:
    """A tensor of one dimension, as its elements."""

    elements: tuple[int, ...]

    def size(self, dim: int) -> int:
        assert dim == 0
        return len(self.elements)

    def narrow(self, dim: int, start: int, length: int) -> Rows:
        assert start + length <= self.size(dim)
        return Rows(self.elements[start : start + length])

    def new_empty(self, size: int) -> Rows:
        assert size == 0
        return Rows(())


def chunked(tensor: Rows, count: int) -> list[Rows]:
    """As in PyTorch: equal chunks while there are elements, then empty ones."""
    each = max(-(-len(tensor.elements) // count), 1)
    cut = [Rows(tensor.elements[at : at + each]) for at in range(0, max(len(tensor.elements), 1), each)]
    return cut + [Rows(())] * (count - len(cut))


@given(st.integers(0, 40), st.integers(1, 50))
def test_shards_are_those_of_a_list_of_chunks(length: int, count: int) -> None:
    tensor = Rows(tuple(range(length)))
    shards = Shards(tensor, count, 0)
    assert list(shards) == chunked(tensor, count)
    assert shards[-1] == chunked(tensor, count)[-1]
    assert shards[1:3] == chunked(tensor, count)[1:3]
    with pytest.raises(IndexError):
        shards[count]


def test_only_accessed_shards_are_created() -> None:
    shards = Shards(Rows((1, 2, 3)), 1 << 60, 0)
    assert (shards[0], shards[2], shards[1 << 59]) == (Rows((1,)), Rows((3,)), Rows(()))


def test_a_pytorch_without_this_function_is_not_patched() -> None:
    other = SimpleNamespace()
    _shard_lazily(other)
    assert not vars(other)
    module = SimpleNamespace(_chunk_with_empty=chunked)
    _shard_lazily(module)
    assert list(module._chunk_with_empty(Rows((7, 8)), 3, dim=0)) == chunked(Rows((7, 8)), 3)
