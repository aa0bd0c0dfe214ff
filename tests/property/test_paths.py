"""Paths found from both ends of a flow are those found from its receiver."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.hardware import choose_cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.path_kernels import meet, walk
from presim.hardware.network.routing import _adjacency_of, _Same
from presim.hardware.network.topology import Builder, Topology


def found(topology: Topology, pairs: list[tuple[int, int]], seed: int) -> list[tuple[int, list[list[int]]]]:
    """What both searches return and fill in."""
    ordered = sorted(pairs, key=lambda pair: pair[1])
    begins, ends = (np.array([pair[at] for pair in ordered], np.int64) for at in (0, 1))
    results = []
    for search in (walk, meet):
        paths = np.full((len(pairs), 12), -1, np.int64)
        stuck = search(*_adjacency_of(_Same(topology), False), begins, ends, seed, paths)
        results.append((stuck, paths.tolist() if stuck < 0 else []))
    return results


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_on_any_network(data: st.DataObject) -> None:
    """Random links between four GPUs and six switches, where some pairs are joined by nothing."""
    builder = Builder(4)
    for number in range(6):
        builder.vertex(f"switch{number}")
    several = st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] != pair[1])
    for one, other in data.draw(st.lists(several, min_size=6, max_size=24)):
        builder.one_way(one, other, 1e9, 0.0)
    topology = builder.build(transit=data.draw(st.booleans()))
    ends = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda pair: pair[0] != pair[1])
    pairs = data.draw(st.lists(ends, min_size=1, max_size=6, unique=True))
    one, other = found(topology, pairs, data.draw(st.integers(0, 5)))
    assert one == other


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["fat-tree", "rail", "dragonfly", "torus", "ring", "mesh"]),
    st.sampled_from(["adaptive", "ecmp"]),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 3),
)
def test_on_every_fabric(fabric: str, routing: str, nics: int, seed: int) -> None:
    sizes = {"leaf_nodes": 2, "pod_leaves": 2} if fabric in ("fat-tree", "rail", "dragonfly") else {}
    levels = {"levels": 3} if fabric in ("fat-tree", "rail") else {}
    table = {"fabric": fabric, "routing": routing, "nics": nics, **sizes, **levels}
    topology = topology_of(choose_cluster(gpu="h100-sxm", nodes=6), table)
    pairs = [(one, other) for one in range(0, 48, 5) for other in range(48) if one // 8 != other // 8]
    one, other = found(topology, pairs, seed)
    assert one == other
    assert one[0] == -1
