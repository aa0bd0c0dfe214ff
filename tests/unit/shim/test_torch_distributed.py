"""torch.distributed on the fake NCCL: one process as rank 0 of 8, whose peers do not exist."""

from __future__ import annotations

import numpy as np
import pytest

from support import emulated

CODE = """
import datetime, torch, torch.distributed as dist

store = dist.HashStore()
dist.init_process_group("nccl", store=store, rank=0, world_size=8, timeout=datetime.timedelta(seconds=30))
x = torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]).cuda()
half = dist.new_group([0, 1, 2, 3])

with section("all_reduce"):
    y = torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]).cuda()
    dist.all_reduce(y)
    results["all_reduce"] = y.tolist()
with section("all_gather"):
    out = torch.empty(32, device="cuda")
    dist.all_gather_into_tensor(out, x, group=half)
    results["all_gather"] = out.tolist()
with section("reduce_scatter"):
    out = torch.empty(1, device="cuda")
    dist.reduce_scatter_tensor(out, x, op=dist.ReduceOp.AVG)
    results["reduce_scatter"] = out.tolist()
with section("all_to_all"):
    out = torch.empty(8, device="cuda")
    dist.all_to_all_single(out, x)
    results["all_to_all"] = out.tolist()
with section("uneven all_to_all"):
    out = torch.empty(8, device="cuda")
    dist.all_to_all_single(out, x, [1, 1, 2, 0, 1, 1, 1, 1], [1, 1, 2, 0, 1, 1, 1, 1])
with section("broadcast"):
    dist.broadcast(x, 3)
with section("point to point"):
    operations = [dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, torch.empty_like(x), 7)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
with section("coalesced"):
    with dist._coalescing_manager(device=torch.device("cuda:0")):
        for _ in range(3):
            dist.all_reduce(x)
with section("objects"):
    objects = [None] * 8
    dist.all_gather_object(objects, {"key": [1, 2]})
    results["objects"] = objects
with section("fsdp"):
    from torch.distributed.fsdp import fully_shard
    model = torch.nn.Linear(64, 64, bias=False, device="cuda", dtype=torch.bfloat16)
    fully_shard(model)
    model(torch.randn(2, 64, device="cuda", dtype=torch.bfloat16)).sum().backward()
with section("ddp"):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64, bias=False, device="cuda"))
    model(torch.randn(2, 64, device="cuda")).sum().backward()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process makes all the calls."""
    emulated.require_cuda_torch()
    return emulated.run(CODE, tmp_path_factory.mktemp("distributed"), TORCH_NCCL_ENABLE_MONITORING="0")


def text(kind: str, size: int, *, comm: int = 0, dtype: str = "f32", redop: str = "none", peer: int = -1) -> str:
    """A collective's fields in the log."""
    return f"collective kind={kind} bytes={size} dtype={dtype} redop={redop} comm={comm} peer={peer}"


def test_collectives_of_a_single_rank(captured: emulated.Captured) -> None:
    """Message sizes follow nccl-tests; roots and peers are ranks of the group."""
    assert captured.work("all_reduce", "collective") == [text("all_reduce", 32, redop="sum")]
    assert captured.work("all_gather", "collective") == [text("all_gather", 128, comm=1)]
    assert captured.work("reduce_scatter", "collective") == [text("reduce_scatter", 32, redop="avg")]
    assert captured.work("all_to_all", "collective") == [text("all_to_all", 32)]
    assert captured.work("broadcast", "collective") == [text("broadcast", 32, peer=3)]
    assert captured.work("point to point", "collective") == [text("send", 32, peer=1), text("recv", 32, peer=7)]


def test_calls_grouped_by_pytorch_are_one_launch(captured: emulated.Captured) -> None:
    """Batched send and receive, coalesced reductions and the sends of an uneven all-to-all."""
    for section, calls in (("point to point", 2), ("coalesced", 3), ("uneven all_to_all", 16)):
        groups = captured.launch_groups(section)
        assert len(groups) == calls
        assert len(set(groups)) == 1
        first, end = captured.sections[section]
        records = captured.log.records[first:end]
        calls_at = np.flatnonzero(records["kind"] == emulated.COLLECTIVE)
        assert (np.diff(calls_at) == 1).all()  # logged together
        assert (records["cpu_ns"][calls_at] == records["cpu_ns"][calls_at[0]]).all()


def test_results_are_those_of_ranks_with_equal_data(captured: emulated.Captured) -> None:
    """A script's checks after a small collective pass."""
    values = [1.0, 2, 3, 4, 5, 6, 7, 8]
    assert captured.results["all_reduce"] == [8 * value for value in values]
    assert captured.results["all_gather"] == values * 4
    assert captured.results["reduce_scatter"] == [1.0]
    assert captured.results["all_to_all"] == [1.0] * 8
    assert captured.results["objects"] == [{"key": [1, 2]}] * 8


def test_fsdp_layer(captured: emulated.Captured) -> None:
    """It gathers 64 x 64 parameters in bf16 and reduce-scatters as many gradients."""
    collectives = captured.work("fsdp", "collective")
    assert text("all_gather", 8192, dtype="bf16") in collectives
    assert text("reduce_scatter", 8192, dtype="bf16", redop="avg") in collectives


def test_distributed_data_parallel(captured: emulated.Captured) -> None:
    """The check of parameter shapes passes and the single bucket is all-reduced."""
    collectives = [line for line in captured.work("ddp", "collective") if "all_reduce" in line]
    assert any("bytes=16384 dtype=f32" in line for line in collectives)


def test_communicators_have_the_sizes_of_their_groups(captured: emulated.Captured) -> None:
    """The world and a group of four."""
    notes = [note for note in captured.log.notes if note.startswith("communicator ")]
    assert [note.split(" ")[2] for note in notes[:2]] == ["size=8", "size=4"]
