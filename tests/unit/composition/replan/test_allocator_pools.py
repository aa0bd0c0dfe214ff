"""A block with a segment for itself is of the largest pool, unless the allocator would then have given it another."""

from __future__ import annotations

from presim.composition.replan.allocator_pools import pools_of
from presim.composition.replan.layer_names import names_of
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind

_MIB = 1 << 20


def pools_with(mebibytes: int) -> list[int]:
    """Pools of three blocks: 30 MiB, one of another size in its own segment once the first is free, 30 MiB again."""
    build = TraceBuilder()
    for address, size, is_new in ((0, 30, True), (1 << 40, mebibytes, True), (0, 30, False)):
        if is_new:
            build.segment(address, size * _MIB)
        build.alloc(address, size * _MIB)
        build.free(address, size * _MIB)
    trace = build.trace()
    names = names_of(trace.scopes, "layers."), names_of(trace.operators, "layers.")
    return pools_of(trace, *names)[trace.mask(Kind.ALLOC)].tolist()


def test_a_block_that_no_free_one_could_hold_is_of_the_largest_pool() -> None:
    assert len(set(pools_with(60))) == 1


def test_a_block_that_a_free_one_could_hold_has_a_pool_of_its_own() -> None:
    first, other, last = pools_with(20)
    assert first == last
    assert other != first
