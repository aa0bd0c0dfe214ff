"""Groups as parts of a grid of ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.trace.grids import axes_of, members_of, origin_of, sisters

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@given(SIZES, st.data())
def test_every_rank_of_a_mesh_is_in_one_group_of_each_kind(sizes: list[int], data: st.DataObject) -> None:
    """Groups that vary some digits of a mesh tile the world, and each of them tells all the others."""
    varied = data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    world = 1
    groups: dict[tuple[int, ...], list[int]] = {}
    for size in sizes:
        world *= size
    for rank in range(world):
        rest, key = rank, []
        for size, free in zip(sizes, varied, strict=True):
            key.append(-1 if free else rest % size)
            rest //= size
        groups.setdefault(tuple(key), []).append(rank)
    tiles = sorted(tuple(group) for group in groups.values())
    chosen = data.draw(st.sampled_from(tiles))
    axes = axes_of(chosen)
    assert axes is not None
    assert sorted(sisters(chosen, world)) == tiles
    for tile in tiles:
        assert all(members_of(origin_of(rank, axes), axes) == tile for rank in tile)


def test_what_is_no_grid_has_no_sisters() -> None:
    assert axes_of((0, 1, 3)) is None
    assert axes_of((1, 2)) is None
    assert sisters((0, 1, 3), 8) == [(0, 1, 3)]
