"""Where NCCL's choice changes, and that no price falls there."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from presim.cost.collectives.choice_steps import steps_above
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.library_choice import choose
from presim.cost.collectives.nccl_choice import CollectiveQuestion
from presim.cost.collectives.nccl_environment import tuning_of
from presim.cost.collectives.nccl_rules import smooth_tree_factor, tree_factor
from presim.hardware import Cluster, choose_cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group

PLACES = [
    ("h100-sxm", 1, 8), ("h100-sxm", 2, 8), ("h100-sxm", 4, 8), ("a100-80gb-sxm", 8, 8), ("gb200", 1, 4),
    ("v100-32gb-sxm", 2, 8), ("l40s", 2, 4), ("a40", 4, 1),
]  # fmt: skip
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def group_of(nodes: int, per_node: int) -> Group:
    return Group("g", tuple(range(nodes * per_node)), nodes * per_node)


def cluster_of(gpu: str, nodes: int, per_node: int) -> Cluster:
    return choose_cluster(gpu=gpu, nodes=nodes, gpus_per_node=per_node)


def smallest_question(gpu: str, nodes: int, per_node: int, kind: str) -> CollectiveQuestion:
    cluster, group = cluster_of(gpu, nodes, per_node), group_of(nodes, per_node)
    layout = layout_of(Collective(kind, 1, "float32", 0), group, cluster)
    return CollectiveQuestion(kind, 1.0, layout, links_of(cluster, layout))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("gpu", "nodes", "per_node"), PLACES)
def test_steps_are_all_changes_of_the_choice(gpu: str, nodes: int, per_node: int, kind: str) -> None:
    question, tuning = smallest_question(gpu, nodes, per_node, kind), tuning_of({})

    def name(size: float) -> tuple[str, int]:
        choice = choose(dataclasses.replace(question, size=float(size)), tuning)
        assert choice is not None
        return choice.algorithm, choice.protocol

    steps = list(steps_above(question, tuning))
    for step in steps:
        assert name(step.first_bytes) == (step.choice.algorithm, step.choice.protocol) != name(step.first_bytes - 1)
    sizes = sorted({int(1.19**power) for power in range(8, 142)})
    for small, large in itertools.pairwise(sizes):
        if name(small) != name(large):
            assert [step for step in steps if small < step.first_bytes <= large]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("gpu", "nodes", "per_node"), PLACES)
def test_no_price_falls_around_a_step(gpu: str, nodes: int, per_node: int, kind: str) -> None:
    cluster, group, model = cluster_of(gpu, nodes, per_node), group_of(nodes, per_node), Hierarchical()
    ends = [step.first_bytes - 1 for step in steps_above(smallest_question(gpu, nodes, per_node, kind), tuning_of({}))]
    channels = [5120 * count - 1 for count in range(1, 33)] + [4096 * group.size * count - 1 for count in range(1, 33)]
    sizes = sorted({size + more for size in (*ends, *channels) for more in (0, 1, 2, size // 64)})
    works = [Collective(kind, size, "float32", 0) for size in sizes]
    times = [model.alone(work, group, cluster).duration_ns for work in works]
    assert times == sorted(times)
    sent = [work.bytes * model.port_traffic(work, group, cluster) for work in works]
    assert all(small <= large * (1 + 1e-9) for small, large in itertools.pairwise(sent))


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_trees_follow_nccl_s_factors_without_their_jumps(protocol: int) -> None:
    powers = [64 << octave for octave in range(26)]
    assert [smooth_tree_factor(protocol, size) for size in powers] == [tree_factor(protocol, size) for size in powers]
    sizes = [1.07**power for power in range(300)]
    times = [size / smooth_tree_factor(protocol, size) for size in sizes]
    assert times == sorted(times)
