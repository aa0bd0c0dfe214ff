"""Searching a list of tensors for strided shards once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.capture.adapters.dtensor_flags import _runs_of_shards, _search_once


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


def derived(specs: Iterable[SimpleNamespace]) -> bool | None:
    """The flag that PyTorch 2.14's search derives from specs: their common one, or True where they differ."""
    flag: bool | None = None
    for spec in specs:
        differs = flag is not None and flag != spec.use_strided_shard_as_shard_order
        flag = True if differs else spec.use_strided_shard_as_shard_order
    return flag


@given(st.lists(st.sampled_from([None, False, True]), max_size=12))
def test_runs_of_flags_derive_what_all_specs_do(flags: list[bool | None]) -> None:
    """Repetitions of a flag change nothing, so the search gets one spec of each run; plain shards do not count."""
    plain = SimpleNamespace(placements=(object(),), use_strided_shard_as_shard_order=True)
    specs = [SimpleNamespace(placements=(Strided(),), use_strided_shard_as_shard_order=flag) for flag in flags]
    runs = _runs_of_shards([item for spec in specs for item in (plain, spec)], Strided)
    assert derived(runs) == derived(specs)
    assert len(runs) == len(list(itertools.groupby(flags)))


@pytest.mark.parametrize("missing", ["_propagate_use_strided_shard_flag", "_StridedShard"])
def test_other_versions_stay(missing: str) -> None:
    """A PyTorch without one of the names is left as it is."""
    module = SimpleNamespace(_propagate_use_strided_shard_flag=print, _StridedShard=Strided)
    delattr(module, missing)
    names = dict(vars(module))
    _search_once(module)
    assert vars(module) == names
