"""A slower rank, node or link never makes a job on a described network faster."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from presim.evaluation.what_if import Changes
from support.long_cases import examples
from support.network_jobs import Call, NetworkJob

_ROUNDED = 0.002  # slowdowns are multiples of 1/1024
_fabrics: st.SearchStrategy[dict[str, Any]] = st.sampled_from([
    {"leaf_nodes": 1, "oversubscription": 4.0},
    {"leaf_nodes": 2, "oversubscription": 2.0},
    {"leaf_nodes": 1, "routing": "ecmp", "oversubscription": 2.0},
    {"fabric": "rail", "leaf_nodes": 1, "oversubscription": 4.0},
    {"fabric": "ring"},
    {"fabric": "torus", "dims": (2, 2)},
    {"fabric": "dragonfly", "leaf_nodes": 1, "pod_leaves": 2},
])  # fmt: skip
_calls = st.builds(
    Call,
    st.sampled_from(["all_reduce", "all_gather", "all_to_all"]),
    st.sampled_from([((1, 4),), ((4, 4),), ((4, 2),), ((8, 2),), ((1, 16),)]),
    st.sampled_from([1, 16, 64]),
)


@st.composite
def network_jobs(draw: st.DrawFn) -> NetworkJob:
    """Up to three collectives on four nodes of four GPUs, one after the other or beside each other."""
    calls = draw(st.lists(_calls, min_size=1, max_size=3))
    beside = draw(st.booleans())
    streams = [dataclasses.replace(call, stream=7 + 4 * index * beside) for index, call in enumerate(calls)]
    return NetworkJob(draw(_fabrics), tuple(streams), nodes=4, gpus_per_node=4)


@given(
    network_jobs(), st.sampled_from(["rank0", "rank5", "rank15", "node0", "node2"]), st.sampled_from([0.2, 0.7, 0.99])
)
@settings(deadline=None, max_examples=examples(25))
def test_a_slower_rank_or_node(job: NetworkJob, name: str, speed: float) -> None:
    slow_ns = job.step_ns(Changes(stragglers={name: speed}))
    assert slow_ns >= job.step_ns() * (1 - _ROUNDED)


@given(network_jobs(), st.sampled_from(["node0.nic0", "node3.nic1", "node1.nic2"]), st.sampled_from([0.3, 0.9]))
@settings(deadline=None, max_examples=examples(25))
def test_a_slower_port(job: NetworkJob, name: str, factor: float) -> None:
    slow: dict[str, Any] = {**job.network, "factors": {name: factor}}
    assert dataclasses.replace(job, network=slow).step_ns() >= job.step_ns() * (1 - _ROUNDED)


@given(network_jobs(), st.sampled_from([0.3, 0.9]))
@settings(deadline=None, max_examples=examples(25))
def test_slower_links_between_nodes(job: NetworkJob, factor: float) -> None:
    assert job.step_ns(Changes(bandwidth={"inter": factor})) >= job.step_ns() * (1 - _ROUNDED)
