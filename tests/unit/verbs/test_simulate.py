"""Saved jobs at another size, and on networks of which a part has failed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import ClusterOptions, SimulateOptions
from presim.trace import job_store
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest, Phase
from presim.trace.signatures import Collective, Gemm
from presim.verbs.simulate import evaluate_saved
from presim.verbs.target import chosen_cluster, cluster_of_more

WORLD, TENSOR = 32, 8
NETWORK = 'gpu = "h100-sxm"\nnodes = 4\n[network]\nfabric = "rail"\nleaf_nodes = 4\nrelay = false\n'


def saved(folder: Path, kind: str = "all_reduce", forward: str = "", world: int = WORLD) -> Path:
    """Tensor parallelism within nodes, data parallelism between them."""
    groups = (Group("tp", tuple(range(TENSOR)), TENSOR), Group("dp", tuple(range(0, world, TENSOR)), world // TENSOR))
    build = TraceBuilder(Manifest(world_size=world, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups))
    for _ in range(2):
        build.work(Gemm(m=8192, n=8192, k=8192, batch=1, dtype="bfloat16"), phase=Phase.FORWARD)
        build.work(Collective("all_reduce", 1 << 24, "bfloat16", group=0), phase=Phase.FORWARD)
        if forward:
            build.work(Collective(forward, 1 << 28, "bfloat16", group=1), phase=Phase.FORWARD)
        build.work(Collective(kind, 1 << 28, "float32", group=1), phase=Phase.BACKWARD)
        build.step()
    job_store.save([build.trace()], folder / "job", stands_for={0: list(range(1, world))})
    (folder / "cluster.toml").write_text(NETWORK)
    return folder


def failing(folder: Path, *failed: str) -> Evaluation:
    options = SimulateOptions(cluster=str(folder / "cluster.toml"), fail=failed, host_time=False)
    return evaluate_saved(folder / "job", options)


def test_a_failed_nic_splits_exactly_the_ranks_whose_groups_wait_for_it(tmp_path: Path) -> None:
    """GPU 11 shares the NIC of GPU 12, so that the groups of ranks 3 and 4 over the nodes are slower."""
    folder = saved(tmp_path)
    usual, broken = failing(folder), failing(folder, "node1.nic3")
    assert sorted(usual.timelines) == [0]
    assert sorted(broken.timelines) == [0, 3]
    assert [rank.represented for rank in broken.result.ranks] == [24, 8]
    assert broken.result.step_time_s is not None
    assert usual.result.step_time_s is not None
    assert broken.result.step_time_s > 1.1 * usual.result.step_time_s
    notes = " ".join(broken.result.notes)
    assert "What if: node1.nic3 fails." in notes
    assert "simulated ranks, most of all the all_reduce over 4 ranks of 'dp' of rank 3" in notes


def test_a_network_that_is_modelled_is_no_omission(tmp_path: Path) -> None:
    result = failing(saved(tmp_path)).result
    assert any(note.startswith("The network is described: ") for note in result.notes)
    assert not any("The network is described" in sentence for sentence in result.not_modelled)


def test_without_contention_groups_do_not_share_the_network(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    tree = (
        NETWORK.replace("rail", "fat-tree").replace("leaf_nodes = 4", "leaf_nodes = 1").replace("relay = false\n", "")
    )
    (folder / "cluster.toml").write_text(tree + "oversubscription = 8\n")
    options = SimulateOptions(cluster=str(folder / "cluster.toml"), host_time=False)
    shared = evaluate_saved(folder / "job", options).result
    alone = evaluate_saved(
        folder / "job", SimulateOptions(cluster=options.cluster, host_time=False, contention=False)
    ).result
    assert shared.step_time_s is not None
    assert alone.step_time_s is not None
    assert alone.step_time_s < shared.step_time_s
    assert "What if: groups of ranks do not share the network." in alone.notes


def test_scale_is_another_degree_of_data_parallelism(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    scaled = evaluate_saved(folder / "job", SimulateOptions(scale="dp=16", host_time=False)).result
    nodes = evaluate_saved(folder / "job", SimulateOptions(world_size=128, host_time=False)).result
    assert scaled.job.world_size == 128
    assert scaled == nodes


def test_a_scale_that_the_capture_does_not_support_names_the_one_that_does(tmp_path: Path) -> None:
    folder = saved(tmp_path, kind="reduce_scatter", forward="all_gather")
    with pytest.raises(InputError, match=r"the 4 ranks of 'dp' hold shards .*; capture the job with --world-size 128"):
        evaluate_saved(folder / "job", SimulateOptions(scale="dp=16"))
    for wrong in ("tp=4", "dp", "dp=0", "dp=x"):
        with pytest.raises(InputError, match="--scale takes dp=N"):
            evaluate_saved(folder / "job", SimulateOptions(scale=wrong))
    with pytest.raises(InputError, match="leave one out"):
        SimulateOptions(scale="dp=4", nodes=2)


def sharded(folder: Path, world: int) -> Path:
    """A job whose data-parallel ranks hold shards."""
    return saved(folder, "reduce_scatter", "all_gather", world) / "job"


def test_a_second_size_in_the_folder_of_the_job_answers_for_more_ranks(tmp_path: Path) -> None:
    """`simulate` says then what it says with `--wider`, and by both options for the number of ranks."""
    job, second = sharded(tmp_path / "first", 32), sharded(tmp_path / "second", 64)
    named = evaluate_saved(job, SimulateOptions(world_size=256, wider=second)).result
    shutil.copytree(second, job / job_store.WIDER)
    assert evaluate_saved(job, SimulateOptions(world_size=256)).result == named
    assert evaluate_saved(job, SimulateOptions(scale="dp=32")).result == named
    assert named.job.world_size == 256
    assert named.notes[2].startswith("Extended from 8 to 32 ranks of 'dp'")


def test_the_captured_sizes_are_as_captured(tmp_path: Path) -> None:
    job, second = sharded(tmp_path / "first", 32), sharded(tmp_path / "second", 64)
    shutil.copytree(second, job / job_store.WIDER)
    captured = evaluate_saved(second, SimulateOptions()).result
    assert evaluate_saved(job, SimulateOptions(world_size=64)).result.step_time_s == captured.step_time_s
    assert evaluate_saved(job, SimulateOptions()).result.job.world_size == 32


def test_a_new_job_in_the_folder_removes_the_second_size(tmp_path: Path) -> None:
    """It would say how another program follows from its ranks."""
    job, second = sharded(tmp_path / "first", 32), sharded(tmp_path / "second", 64)
    shutil.copytree(second, job / job_store.WIDER)
    sharded(tmp_path / "first", 32)
    with pytest.raises(InputError, match=r"capture the job with --world-size 256, or with --world-size 64 and name"):
        evaluate_saved(job, SimulateOptions(world_size=256))


def test_a_second_size_is_more_whole_nodes() -> None:
    cluster = chosen_cluster(ClusterOptions(gpu="h100-sxm", nodes=4, gpus_per_node=8))
    assert cluster_of_more(cluster, 64).nodes == 8
    for number in (16, 32, 60):
        with pytest.raises(InputError, match=f"--wider {number} is to be a multiple of the 8 GPUs of a node, and more"):
            cluster_of_more(cluster, number)
