"""What RCCL chooses on AMD's chips, by its own tables."""

from __future__ import annotations

import pytest

from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.library_choice import choose, estimates
from presim.cost.collectives.nccl_choice import LL, LL128, SIMPLE, CollectiveQuestion
from presim.cost.collectives.nccl_environment import tuning_of
from presim.hardware import choose_cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group

KIB, MIB = 1 << 10, 1 << 20


def question_of(gpu: str, nodes: int, kind: str, size: int) -> CollectiveQuestion:
    cluster, group = choose_cluster(gpu=gpu, nodes=nodes), Group("g", tuple(range(8 * nodes)), 8 * nodes)
    layout = layout_of(Collective(kind, size, "float32", 0), group, cluster)
    return CollectiveQuestion(kind, float(size), layout, links_of(cluster, layout))


@pytest.mark.parametrize(
    ("gpu", "nodes", "kind", "size", "algorithm", "protocol"),
    [
        ("mi300x", 1, "all_reduce", 128 * KIB, "ring", LL),
        ("mi325x", 1, "all_reduce", 8 * MIB, "ring", SIMPLE),  # no tree with Simple, no LL128 that is better than LL
        ("mi300x", 2, "all_reduce", 512 * KIB, "tree", LL),  # the last size with LL
        ("mi300x", 2, "all_reduce", 512 * KIB + 1, "tree", LL128),
        ("mi300x", 2, "all_reduce", 4_415_057, "tree", LL128),  # the last size with LL128 on two nodes
        ("mi300x", 2, "all_reduce", 4_415_058, "tree", SIMPLE),
        ("mi300x", 4, "all_reduce", 16 * MIB, "tree", LL128),  # 3.8 times as many bytes on more nodes
        ("mi300x", 2, "all_gather", 16 * 98_304, "ring", LL),
        ("mi300x", 2, "all_gather", 16 * 98_304 + 16, "ring", LL128),
        ("mi300x", 2, "reduce_scatter", 16 * 3_211_264 + 16, "ring", SIMPLE),
        ("mi355x", 2, "all_reduce", 257 * KIB, "tree", LL128),
        ("mi350x", 2, "broadcast", 16 * 2_048, "ring", LL),
        ("mi350x", 2, "all_reduce", 32 * MIB, "tree", LL128),  # this and the next two: ROCm/rocm-systems pull 9406
        ("mi350x", 2, "all_reduce", 64 * MIB, "ring", LL128),
        ("mi350x", 2, "all_reduce", 128 * MIB, "ring", SIMPLE),
    ],
)
def test_the_choice_is_that_of_the_chips_tables(
    gpu: str, nodes: int, kind: str, size: int, algorithm: str, protocol: int
) -> None:
    choice = choose(question_of(gpu, nodes, kind, size), tuning_of())
    assert choice is not None
    assert (choice.algorithm, choice.protocol) == (algorithm, protocol)


def test_a_node_has_no_tree_with_simple() -> None:
    choices = estimates(question_of("mi300x", 1, "all_reduce", MIB), tuning_of())
    pairs = {(choice.algorithm, choice.protocol) for choice in choices}
    assert ("tree", LL) in pairs
    assert ("tree", SIMPLE) not in pairs


@pytest.mark.parametrize("variable", ["NCCL_PROTO", "NCCL_ALGO"])
def test_variables_limit_the_choice(variable: str) -> None:
    value = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}[variable]
    choice = choose(question_of("mi300x", 2, "all_reduce", 16 * MIB), tuning_of({variable: value}))
    assert choice is not None
    assert choice.protocol == LL if variable == "NCCL_PROTO" else choice.algorithm == "ring"


@pytest.mark.parametrize("gpu", ["mi300x", "mi355x"])
@pytest.mark.parametrize("nodes", [1, 2, 8])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_more_bytes_never_take_less_time(gpu: str, nodes: int, kind: str) -> None:
    cluster, group = choose_cluster(gpu=gpu, nodes=nodes), Group("g", tuple(range(8 * nodes)), 8 * nodes)
    sizes = [round(64 * 1.3**power) for power in range(70)]
    prices = [Hierarchical().alone(Collective(kind, size, "float32", 0), group, cluster).duration_ns for size in sizes]
    assert prices == sorted(prices)


@pytest.mark.parametrize(("MiB", "measured_us"), [(32, 493.9), (64, 808.8), (128, 1095.4)])
def test_what_is_chosen_is_priced_as_measured(MiB: int, measured_us: float) -> None:
    """Two nodes of MI350X (ROCm/rocm-systems pull 9406). With H100's constants LL128 would be 34 and 55 % faster."""
    cluster, group = choose_cluster(gpu="mi350x", nodes=2), Group("g", tuple(range(16)), 16)
    price = Hierarchical().alone(Collective("all_reduce", MiB * MIB, "float32", 0), group, cluster)
    assert price.duration_ns == pytest.approx(measured_us * 1e3, rel=0.15)
