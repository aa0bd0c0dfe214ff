"""Searching a list of tensors for strided shards once."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from presim.capture.adapters.dtensor_flags import _search_once


class Strided:
    """A placement that PyTorch looks for."""


@dataclasses.dataclass(eq=False)
class Call:
    """The arguments of an operator; counts how often they are listed."""

    placements: tuple[object, ...]
    listings: int = 0

    @property
    def args_spec(self) -> list[SimpleNamespace]:
        self.listings += 1
        return [SimpleNamespace(placements=self.placements)]


def patched() -> tuple[SimpleNamespace, list[str]]:
    """PyTorch's module with the adapter, and the strategies that its own search gets."""
    searched: list[str] = []
    module = SimpleNamespace(
        _propagate_use_strided_shard_flag=lambda strategy, call: searched.append(strategy), _StridedShard=Strided
    )
    _search_once(module)
    return module, searched


def test_plain_shards_are_listed_once() -> None:
    """Without a strided shard, one listing serves all tensors and nothing is searched."""
    module, searched = patched()
    calls = [Call((object(),)) for _ in range(3)]
    for call in calls:
        for tensor in "abc":
            module._propagate_use_strided_shard_flag(tensor, call)
    assert [call.listings for call in calls] == [1, 1, 1]
    assert searched == []


def test_strided_shards_are_searched_by_pytorch() -> None:
    """With one, each tensor gets PyTorch's own search, before and after other calls."""
    module, searched = patched()
    strided, plain = Call((object(), Strided())), Call(())
    for tensor, call in [("a", strided), ("b", plain), ("c", strided), ("d", strided)]:
        module._propagate_use_strided_shard_flag(tensor, call)
    assert searched == ["a", "c", "d"]


@pytest.mark.parametrize("missing", ["_propagate_use_strided_shard_flag", "_StridedShard"])
def test_other_versions_stay(missing: str) -> None:
    """A PyTorch without one of the names is left as it is."""
    module = SimpleNamespace(_propagate_use_strided_shard_flag=print, _StridedShard=Strided)
    delattr(module, missing)
    names = dict(vars(module))
    _search_once(module)
    assert vars(module) == names
