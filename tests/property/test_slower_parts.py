"""A slower rank, node or link, or fewer links upwards, never makes a job on a described network faster."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from presim.evaluation.what_if import Changes
from support.long_cases import examples
from support.network_jobs import Call, NetworkJob

_AGREE = 0.01
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

# Fabrics with two leaves, pods or groups of two nodes, and the key that makes links between them scarce.
_halves: st.SearchStrategy[tuple[dict[str, Any], str]] = st.sampled_from([
    ({"leaf_nodes": 2}, "oversubscription"),
    ({"leaf_nodes": 2, "routing": "ecmp", "spines": 4}, "oversubscription"),
    ({"leaf_nodes": 2, "nics": 2}, "oversubscription"),
    ({"fabric": "rail", "leaf_nodes": 2}, "oversubscription"),
    ({"fabric": "dragonfly", "leaf_nodes": 2, "pod_leaves": 1}, "oversubscription"),
    ({"leaf_nodes": 1, "levels": 3, "pod_leaves": 2}, "core_oversubscription"),
])  # fmt: skip
_kinds = st.sampled_from(["all_reduce", "all_gather", "all_to_all"])
_below_leaves = st.builds(Call, _kinds, st.sampled_from([((1, 4),), ((4, 2),), ((1, 8),)]), st.sampled_from([16, 128]))
_above_leaves = st.builds(
    Call, _kinds, st.sampled_from([((8, 2),), ((4, 4),), ((1, 16),)]), st.sampled_from([4, 64]), st.just(11)
)


@st.composite
def jobs_between_leaves(draw: st.DrawFn) -> tuple[NetworkJob, str]:
    """Collectives below leaves on one stream, beside some that cross them; the fabric's key of scarcity."""
    fabric, scarcity_key = draw(_halves)
    below = draw(st.lists(_below_leaves, min_size=1, max_size=5))
    above = draw(st.lists(_above_leaves, min_size=1, max_size=2))
    return NetworkJob(fabric, (*below, *above), nodes=4, gpus_per_node=4), scarcity_key


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


@given(jobs_between_leaves(), st.sampled_from([(1.0, 1.5), (1.0, 4.0), (1.5, 2.0), (2.0, 8.0)]))
@settings(deadline=None, max_examples=examples(25))
def test_higher_oversubscription(job_and_key: tuple[NetworkJob, str], levels: tuple[float, float]) -> None:
    job, scarcity_key = job_and_key
    ample_ns, scarce_ns = (
        dataclasses.replace(job, network={**job.network, scarcity_key: level}).step_ns() for level in levels
    )
    assert scarce_ns >= ample_ns * (1 - _ROUNDED)


@given(jobs_between_leaves(), st.sampled_from([0.3, 0.8]), st.booleans())
@settings(deadline=None, max_examples=examples(15))
def test_a_slower_switch(job_and_key: tuple[NetworkJob, str], factor: float, is_last: bool) -> None:
    job, _ = job_and_key
    switch = f"{'rail3.' if job.network.get('fabric') == 'rail' else ''}leaf{int(is_last)}"
    slow: dict[str, Any] = {**job.network, "factors": {switch: factor}}
    assert dataclasses.replace(job, network=slow).step_ns() >= job.step_ns() * (1 - _ROUNDED)


@given(jobs_between_leaves(), st.sampled_from([1.0, 4.0]))
@settings(deadline=None, max_examples=examples(15))
def test_every_rank_by_itself_takes_as_long(job_and_key: tuple[NetworkJob, str], level: float) -> None:
    job, scarcity_key = job_and_key
    scarce_job = dataclasses.replace(job, network={**job.network, scarcity_key: level})
    assert abs(scarce_job.step_of_every_rank_ns() / scarce_job.step_ns() - 1) <= _AGREE
