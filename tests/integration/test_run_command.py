"""Uses of `presim run`: ranks, modules, arguments, output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.captured import SCRIPTS
from support.command import presim
from support.long_cases import marked

pytestmark = pytest.mark.torch_cuda

ONE = ("--gpu", "h100-sxm", "--world-size", "1")


def test_json_on_standard_output_is_only_json(tmp_path: Path) -> None:
    """The script's output goes to standard error; another requested file is written too."""
    ended = presim("run", *ONE, "--json", "-", "--perfetto", tmp_path / "t.json", SCRIPTS / "optimizers.py", "SGD")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["exit"] == "ok"
    assert "the optimizer is SGD" in ended.stderr
    assert (tmp_path / "t.json").stat().st_size > 0


def test_the_script_s_output_goes_where_it_would_without_presim() -> None:
    """Its own output, then the report; quiet drops only the report."""
    ended = presim("run", *ONE, "--steps", "0", SCRIPTS / "optimizers.py", "SGD")
    assert ended.stdout.startswith("the optimizer is SGD\n")
    assert "step time" in ended.stdout
    quiet = presim("run", *ONE, "--steps", "0", "--quiet", SCRIPTS / "optimizers.py", "SGD")
    assert quiet.stdout == "the optimizer is SGD\n"


@pytest.mark.long
def test_steps_end_a_script_early(tmp_path: Path) -> None:
    ended = presim("run", *ONE, "--steps", "2", "--json", tmp_path / "r.json", "-q", SCRIPTS / "optimizers.py", "SGD")
    result = json.loads((tmp_path / "r.json").read_text())
    assert (ended.returncode, result["exit"], result["steps"]["count"], ended.stderr) == (0, "stopped", 2, "")


def test_a_module_runs_with_its_arguments_from_the_working_directory(tmp_path: Path) -> None:
    """Options after the script's name belong to the script."""
    package = tmp_path / "training"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        "import sys, torch\nprint(__name__, __package__, sys.argv[1:])\ntorch.ones(9, device='cuda').sum()\n"
    )
    ended = presim("run", *ONE, "-q", "-m", "training", "--steps", "7", "-q", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "__main__ training ['--steps', '7', '-q']\n")


RANK = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1 << 20, device="cuda")
dist.all_reduce(x)
pair = dist.new_group([dist.get_rank() - 1, dist.get_rank()])
dist.all_gather_into_tensor(torch.empty(2 << 20, device="cuda"), x, group=pair)
dist.barrier()
print(dist.get_rank(), dist.get_world_size(), torch.cuda.current_device(), os.environ["GROUP_RANK"])
"""


@pytest.mark.parametrize(
    ("rank", "world"),
    [pytest.param(5, 16, marks=pytest.mark.long), (1023, 1024), pytest.param(9999, 16384, marks=pytest.mark.long)],
)
def test_one_process_can_be_any_rank_of_any_world(rank: int, world: int, tmp_path: Path) -> None:
    """It runs alone, but its groups and collectives have the sizes of the world."""
    (tmp_path / "rank.py").write_text(RANK)
    options = ("--gpu", "h100-sxm", "--world-size", str(world), "--rank", str(rank), "--save", tmp_path / "t")
    ended = presim("run", *options, "-q", tmp_path / "rank.py")
    assert (ended.returncode, ended.stdout) == (0, f"{rank} {world} {rank % 8} {rank // 8}\n")
    looked = json.loads(presim("trace", "--json", "-", tmp_path / "t").stdout)
    kinds = {(one["kind"], one["bytes"], one["group_size"]) for one in looked["summary"]["collectives"]}
    assert ("all_reduce", (4 << 20) + 4, world) in kinds  # four bytes are the barrier
    assert ("all_gather", 8 << 20, 2) in kinds


WORKERS = '''
import subprocess, sys, torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset
def child(index): print("child", index, flush=True)
TIMES = """
import torch
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record(); torch.zeros(8, device="cuda"); end.record(); torch.cuda.synchronize()
print("subprocess", 0 < start.elapsed_time(end) < 1000, flush=True)
"""
if __name__ == "__main__":
    data = DataLoader(TensorDataset(torch.randn(64, 32)), batch_size=16, num_workers=2, pin_memory=True)
    model = torch.nn.Linear(32, 32).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    subprocess.run([sys.executable, "-c", TIMES], check=True)
    mp.spawn(child, nprocs=1)
    for (inputs,) in data:
        model(inputs.cuda(non_blocking=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("end")
'''


def test_workers_and_subprocesses_run_without_affecting_the_trace(tmp_path: Path) -> None:
    """Four batches give four steps with copies of pinned inputs; programs that it starts can time events."""
    (tmp_path / "workers.py").write_text(WORKERS)
    ended = presim("run", *ONE, "--steps", "0", "--json", tmp_path / "r.json", "-q", tmp_path / "workers.py")
    assert (ended.returncode, ended.stdout.split("\n")) == (0, ["subprocess True", "child 0", "end", ""]), ended.stderr
    assert json.loads((tmp_path / "r.json").read_text())["steps"]["count"] == 4


MEETS = """
import os, sys, torch, torch.distributed as dist
how, rank, world = sys.argv[1], int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
torch.cuda.set_device(int(os.environ["SLURM_LOCALID"]))
dist.init_process_group("nccl", init_method=how, rank=rank, world_size=world)
x = torch.ones(1 << 20, device="cuda")
dist.all_reduce(x)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "env", os.environ.get("RANK"))
"""


@pytest.mark.parametrize(
    "how", marked(["tcp://node0:29500", "file:///nowhere/at/all", "env://"], ["file:///nowhere/at/all", "env://"])
)
def test_a_slurm_script_can_use_its_own_rendezvous_address(tmp_path: Path, how: str) -> None:
    """The launcher's store replaces any address; the script's rank comes from Slurm's variables."""
    script = tmp_path / "meets.py"
    script.write_text(MEETS)
    command = ("srun", "-N", "2", "--ntasks-per-node", "8", "python", script, how)
    ended = presim("run", "--gpu", "h100-sxm", "-q", "--rank", "9", "--", *command)
    assert (ended.returncode, ended.stdout) == (0, "rank 9 of 16 env None\n"), ended.stderr
