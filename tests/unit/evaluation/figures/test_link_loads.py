"""Loads of links add up to the bytes that collectives send."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from presim.analysis.time.steps import find_steps
from presim.evaluation.figures.link_loads import MOST_GPUS, link_loads
from presim.result.step_figures import LinkLoads
from support.network_jobs import Call, NetworkJob

_FAT_TREE = {"fabric": "fat-tree", "leaf_nodes": 1}
_NODES = ((8, 2),)  # two ranks, one in each node
_WITHIN = ((1, 8),)


def loaded(*calls: Call, nodes: int = 2) -> tuple[LinkLoads, float]:
    """The loads of a job, and the seconds of its step."""
    evaluation = NetworkJob(_FAT_TREE, calls, nodes=nodes).evaluate()
    first, last = find_steps(evaluation.priced.trace, evaluation.timeline).steady.span_ns
    return link_loads(evaluation), (last - first) / 1e9


def sent_bytes(data: LinkLoads, step_s: float, kind: str) -> set[int]:
    """Bytes on the busier direction of each link of a kind over the whole step, in MiB."""
    vertices, links = data.vertices, data.links
    chosen = [
        (np.array(loads) / 100).mean() * bandwidth * step_s / (1 << 20)
        for lower, upper, bandwidth, loads in links
        if f"{vertices[lower].kind} - {vertices[upper].kind}" == kind
    ]
    return {round(size / 4) * 4 for size in chosen}


def test_an_all_gather_between_two_nodes_puts_half_of_its_bytes_on_each_port() -> None:
    """All eight groups run at once; each of two ranks sends its half of 256 MiB."""
    data, step_s = loaded(Call("all_gather", _NODES, MiB=256))
    assert sent_bytes(data, step_s, "nic - leaf") == {128}
    assert sent_bytes(data, step_s, "gpu - nvswitch") == {0}


def test_an_all_reduce_within_nodes_puts_twice_seven_eighths_on_the_links_of_nodes_alone() -> None:
    data, step_s = loaded(Call("all_reduce", _WITHIN, MiB=256))
    assert sent_bytes(data, step_s, "gpu - nvswitch") == {448}
    assert sent_bytes(data, step_s, "nic - leaf") == {0}


def test_the_busiest_link_of_a_kind_is_the_busiest_that_is_drawn() -> None:
    data, _ = loaded(Call("all_gather", _NODES), Call("all_reduce", _WITHIN))
    vertices, links, by_kind = data.vertices, data.links, data.by_kind
    for kind, busiest in by_kind.items():
        drawn = [link[3] for link in links if kind == " - ".join(vertices[end].kind for end in link[:2])]
        assert np.max(drawn, axis=0).tolist() == busiest


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        (1, "One GPU has no network."),
        (2 * MOST_GPUS, "Links are loaded up to 4,096 GPUs; this job has 8,192."),
    ],
)
def test_what_has_no_drawing_says_so(gpus: int, sentence: str) -> None:
    evaluation = NetworkJob(_FAT_TREE, (Call("all_reduce", _WITHIN),), nodes=1).evaluate()
    cluster = msgspec.structs.replace(evaluation.cluster, nodes=max(gpus // 8, 1), gpus_per_node=min(gpus, 8))
    assert link_loads(dataclasses.replace(evaluation, cluster=cluster)) == LinkLoads(sentence)
