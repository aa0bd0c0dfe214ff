"""Scripts that start a process for each GPU themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import presim

pytestmark = pytest.mark.torch_cuda

SPAWNS = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def train(rank, world, rows):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(rows, 64, device="cuda")).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    gpus = int(sys.argv[1])
    mp.spawn(train, args=(gpus, 8), nprocs=gpus)
    print("all over")
"""


def test_spawned_functions_run_in_the_rank_s_process(tmp_path: Path) -> None:
    script, report = tmp_path / "spawns.py", tmp_path / "r.json"
    script.write_text(SPAWNS)
    ended = presim("run", "--gpu", "h100-sxm", "--nodes", "1", "--steps", "0", "-q", "--json", report, script, "8")
    assert (ended.returncode, ended.stdout) == (0, "all over\n"), ended.stderr
    result = json.loads(report.read_text())
    assert [(rank["rank"], rank["represented"]) for rank in result["ranks"]] == [(0, 8)]
    assert result["coverage"]["compared"] == 7
    assert result["steps"]["count"] == 3


@pytest.mark.long
def test_a_different_number_of_processes_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS)
    ended = presim("run", "--gpu", "h100-sxm", "-q", script, "8")
    assert ended.returncode == 2
    assert ended.stderr.endswith(
        "the script starts 8 processes on each machine itself (torch.multiprocessing), but presim runs 1 on each node: "
        "use --nodes N --gpus-per-node 8\n"
    )
