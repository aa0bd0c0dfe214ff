"""Jobs on clusters of several groups of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import SimulateOptions
from presim.evaluation.what_if import changes_of
from presim.hardware import Cluster, choose_cluster
from presim.hardware.host import host_factor
from presim.hardware.network.build_topology import topology_of
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Gemm
from presim.verbs.every_rank import with_every_rank

WORLD = 32
MIXED = """
nodes = 4
gpu = "h100-sxm"

[[groups]]
name = "old"
first_node = 2
nodes = 1
gpu = "a100-80gb-sxm"
"""


def described(folder: Path, text: str = MIXED) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text)
    return path


def trace() -> Trace:
    group = Group("world", tuple(range(WORLD)), WORLD)
    build = TraceBuilder(
        Manifest(world_size=WORLD, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=(group,))
    )
    for _ in range(3):
        build.work(Gemm(m=8192, n=8192, k=8192, batch=1, dtype="bfloat16"), phase=Phase.FORWARD)
        build.work(Collective("all_reduce", 1 << 28, "float32", group=0), phase=Phase.BACKWARD)
        build.step()
    return build.trace()


def predicted(cluster: Cluster) -> Evaluation:
    return evaluate(Job.of(trace(), stands_for={0: range(1, WORLD)}), cluster, Options(host_factor=1.0))


def test_each_rank_has_the_prices_of_its_own_nodes_and_the_slowest_group_is_named(tmp_path: Path) -> None:
    """A step is the slow GPUs' product and the slow network's reduction."""
    mixed = predicted(choose_cluster(cluster=described(tmp_path)))
    fast, slow = (predicted(choose_cluster(gpu=gpu, nodes=4)) for gpu in ("h100-sxm", "a100-80gb-sxm"))
    assert sorted(mixed.timelines) == [0, 16]
    assert [rank.represented for rank in mixed.result.ranks] == [24, 8]
    for mine, theirs in ((0, fast), (16, slow)):
        assert mixed.ranks[mine].prices == theirs.ranks[0].prices
    assert mixed.result.step_time_s == pytest.approx(slow.result.step_time_s, rel=1e-3)
    assert mixed.result.job.gpu == "h100-sxm"
    notes = " ".join(mixed.result.notes)
    assert "2 groups of nodes: 'old' (node 2, 8 a100-80gb-sxm), the rest (24 h100-sxm)." in notes
    assert "Group 'old' is the slowest: " in notes


def test_nodes_that_are_alike_in_groups_are_as_without(tmp_path: Path) -> None:
    alike = described(tmp_path, '[[groups]]\nnodes = 1\ngpu = "h100-sxm"\n[[groups]]\nnodes = 3\ngpu = "h100-sxm"\n')
    mixed, one = predicted(choose_cluster(cluster=alike)), predicted(choose_cluster(gpu="h100-sxm", nodes=4))
    assert mixed.result.step_time_s == one.result.step_time_s
    assert not any("is the slowest" in note for note in mixed.result.notes)


@pytest.mark.parametrize("network", ["", '[network]\nfabric = "fat-tree"\nleaf_nodes = 1\noversubscription = 8.0\n'])
def test_every_rank_simulated_by_itself_says_the_same(tmp_path: Path, network: str) -> None:
    cluster = choose_cluster(cluster=described(tmp_path, MIXED.replace("\n[[", f"\n{network}\n[[", 1)))
    mixed = predicted(cluster)
    told = with_every_rank(mixed, cluster, SimulateOptions(ranks_simulated="all")).result.every_rank
    assert told is not None
    assert told.step_time_s == mixed.result.step_time_s


NARROW = '[network]\nfabric = "fat-tree"\nleaf_nodes = 1\noversubscription = 8.0\n'


def test_groups_are_on_one_described_network(tmp_path: Path) -> None:
    """All ranks see the same links; those of a group's nodes are its own. A part of them may fail."""
    mixed = choose_cluster(cluster=described(tmp_path, MIXED.replace("\n[[", "\n" + NARROW + "\n[[", 1)))
    seen = [topology_of(view, view.network) for view in map(mixed.as_seen_by, (0, 16))]
    links = [dict(zip(map(one.link_name, range(one.links)), one.bandwidth_Bps.tolist())) for one in seen]
    assert links[0] == links[1]
    fast, slow = (links[0][f"node{node}.nic0 -> leaf{node}"] for node in (0, 2))
    assert (fast, slow) == (mixed.fabric.port_bytes_per_s, mixed.groups[0].fabric.port_bytes_per_s)
    assert fast > slow
    step_s = []
    for failed in ((), ("node3.nic0=0.9",)):
        changes = changes_of((), (), (), failed)
        found = evaluate(
            Job.of(trace(), stands_for={0: range(1, WORLD)}), mixed, Options(host_factor=1.0), changes=changes
        )
        step_s.append(found.result.step_time_s or 0.0)
        assert {0, 16} <= set(found.timelines)
    assert step_s[1] > step_s[0]


def test_groups_of_the_same_nodes_are_on_a_network_as_without_groups(tmp_path: Path) -> None:
    text = f'gpu = "h100-sxm"\nnodes = 4\n{NARROW}'
    (tmp_path / "one").mkdir()
    alike = described(tmp_path, f'{text}[[groups]]\nnodes = 1\ngpu = "h100-sxm"\n')
    one = described(tmp_path / "one", text)
    steps = [predicted(choose_cluster(cluster=path)).result.step_time_s for path in (alike, one)]
    assert steps[0] == pytest.approx(steps[1], rel=1e-3)


def test_hosts_take_the_time_of_their_own_nodes(tmp_path: Path) -> None:
    """Without a factor on the command line each rank has that of its node."""
    text = MIXED + '\n[groups.node]\nbase = "dgx-a100"\nhost_factor = 9.0\n'
    cluster = choose_cluster(cluster=described(tmp_path, text))
    assert cluster.groups[0].node.host_factor == 9.0
    found = evaluate(Job.of(slow_host(), stands_for={0: range(1, WORLD)}), cluster)
    assert found.options.host_factor is not None
    ratio = found.ranks[16].trace.columns["host_ns"].sum() / found.ranks[0].trace.columns["host_ns"].sum()
    assert ratio == pytest.approx(
        host_factor(True, server=9.0, undisturbed=False) / found.options.host_factor, rel=1e-3
    )


def slow_host() -> Trace:
    build = TraceBuilder(
        Manifest(world_size=WORLD, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", reference_host=True)
    )
    build.work(Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16"), host_ns=10_000_000)
    return build.trace()


def test_what_a_group_does_not_say_is_as_in_the_rest(tmp_path: Path) -> None:
    text = 'gpu = "h100-sxm"\nfabric = "ib-ndr-400"\nnodes = 4\n[[groups]]\nnodes = 2\n[groups.fabric]\n'
    text += 'base = "ib-ndr-400"\nport_GBps = 25\n'
    slow = choose_cluster(cluster=described(tmp_path, text)).groups[0]
    assert (slow.gpu.id, slow.fabric.port_bytes_per_s) == ("h100-sxm", 25e9)
    assert (slow.name, slow.first_node, slow.nodes) == ("group 0", 0, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[groups]]\nnodes = 2\n", "no GPU is named"),
        ("[[groups]]\ngpu = 'h100-sxm'\n", "the number of nodes is missing; add nodes = N"),
        ("[[groups]]\ngpus = 3\n", "unknown key gpus; a group has name, nodes, first_node, gpu, node, fabric"),
        ("[[groups]]\nnodes = 0\n", "nodes = 0 must be a whole number of at least 1"),
        ("groups = 3\n", "groups must be tables"),
        (
            "gpu = 'h100-sxm'\nnodes = 2\n[[groups]]\nnodes = 3\n",
            "group 'group 0' has nodes 0 to 2, but the cluster has 2 nodes; set nodes = 3",
        ),
        (
            "gpu = 'h100-sxm'\n[[groups]]\nnodes = 3\n[[groups]]\nfirst_node = 2\nnodes = 2\n",
            "groups 'group 0' and 'group 1' both have node 2",
        ),
        (
            "gpu = 'h100-sxm'\n[[groups]]\nname='a'\nnodes = 1\n[[groups]]\nname='a'\nnodes = 1\n",
            "two groups are named",
        ),
        (
            "gpu = 'h100-sxm'\nnodes = 2\ngpus_per_node = 8\n[[groups]]\nnodes = 1\ngpu = 'rtx-4090'\n"
            "[groups.node]\nbase = 'hgx-h100'\ngpus = 4\n",
            "group 'group 0' has nodes of 4 GPUs",
        ),
    ],
)
def test_groups_that_cannot_be_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        choose_cluster(cluster=described(tmp_path, text))
    assert message in str(raised.value)


def test_a_gpu_beside_groups_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--gpu b200 does not apply to a single group"):
        choose_cluster(cluster=described(tmp_path), gpu="b200")
