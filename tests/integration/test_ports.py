"""Groups that share a network port, from the script to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import presim

pytestmark = pytest.mark.torch_cuda

# Each GPU of a node reduces 1 GB with its counterpart on the other node, or only the first GPU does.
CROSSING = """
import os, sys, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, gpus = dist.get_rank(), dist.get_world_size() // 2
groups = [dist.new_group([place, place + gpus]) for place in range(gpus)]
data = torch.zeros(250_000_000, device="cuda")
weight = torch.nn.Parameter(torch.zeros(8, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    dist.barrier()
    if sys.argv[1] == "all" or rank % gpus == 0:
        dist.all_reduce(data, group=groups[rank % gpus])
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    torch.cuda.synchronize()
"""


@pytest.mark.long
def test_four_groups_on_one_port_take_four_times_as_long_as_one(tmp_path: Path) -> None:
    """With all ranks simulated or one that represents the others; with separate ports they take as long as one."""
    for name, ports in (("one-port", 1), ("own-ports", 4)):
        (tmp_path / f"{name}.toml").write_text(f'base = "hgx-h100"\ngpus = 4\nnics = {ports}\n')
    (tmp_path / "crossing.py").write_text(CROSSING)
    alone = reduced(tmp_path, *captured("first", "all"))
    together = {ranks: reduced(tmp_path, *captured("all", ranks)) for ranks in ("all", "auto")}
    assert alone["seconds"] == pytest.approx(1e9 / 50e9 / 0.8, rel=0.05)  # NCCL reaches about 80 % of a port
    assert alone["shared_ports_s"] == 0.0
    for result in together.values():
        assert result["seconds"] == pytest.approx(4 * alone["seconds"], rel=0.02)
        assert result["shared_ports_s"] == pytest.approx(3 * alone["seconds"], rel=0.02)
    apart = reduced(tmp_path, "simulate", "--node", "own-ports.toml", "all-auto")
    assert apart["seconds"] == pytest.approx(alone["seconds"], rel=0.02)


def captured(who: str, ranks: str) -> tuple[str, ...]:
    """Arguments of a command that runs the script and saves the job in a folder of that name."""
    cluster = ("--gpu", "h100-sxm", "--node", "one-port.toml", "--fabric", "ib-ndr-400", "--nodes", "2")
    return ("run", *cluster, "--ranks", ranks, "-q", "--save", f"{who}-{ranks}", "crossing.py", who)


def reduced(folder: Path, verb: str, *words: str) -> dict[str, float]:
    """Duration of rank 0's all-reduce, and the share of the step due to ports."""
    report = folder / "r.json"
    ended = presim(verb, "--json", report, *words, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(report.read_text())
    (call,) = (row for row in result["collectives"] if row["group_size"] == 2)
    return {"seconds": call["seconds"], "shared_ports_s": result["time"]["shared_ports_s"]}
