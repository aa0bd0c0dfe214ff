"""Ranks that work more, found by where the program learns its rank, and on which axis they lie.

A case is an expression that is true for the ranks with more work. Add one by adding a line. The world of 4 nodes with 4
GPUs is sampled as a large one is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.ranks import auto, replica_sampling
from presim.evaluation.options import RunOptions
from presim.result import Result
from support.captured import evaluated
from support.long_cases import marked

pytestmark = [pytest.mark.torch_cuda]

PROGRAM = """
import os, socket, torch, torch.distributed as dist
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
layer = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
device = torch.device("cuda", local_rank)
works_more = {condition}
for _ in range(2):
    x = torch.ones(2048, 2048, device=device)
    layer(x).sum().backward()
    for _ in range(20 if works_more else 0):
        layer(x)
    dist.all_reduce(layer.weight.grad)
    optimizer.step()
"""
FOUND = [
    "dist.group.WORLD.rank() == 5",
    "local_rank == 2",
    "torch.cuda.current_device() == 2",
    "layer.weight.device.index == 1",
    "int(os.environ.copy()['GROUP_RANK']) == 2",
    "dict(os.environ)['RANK'] == '10'",
    "dist.get_process_group_ranks(dist.group.WORLD).index(dist.get_rank()) % 4 == 3",
    "dist.init_device_mesh('cuda', (4, 4)).get_coordinate()[0] == 1",
]
LONG = [condition for condition in FOUND if not condition.startswith("dist.init")]
CONFINED = ["print(local_rank)", "layer.to(torch.cuda.current_device()) is None", "int(os.environ['WORLD_SIZE']) < 4"]


@pytest.fixture(autouse=True)
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample even this small world."""
    monkeypatch.setattr(auto, "SMALL_WORLD", 1)
    monkeypatch.setattr(replica_sampling, "_CHEAP_WORLD", 1)


def result_of(condition: str, folder: Path) -> Result:
    script = folder / "train.py"
    script.write_text(PROGRAM.format(condition=condition))
    return evaluated(script, options=RunOptions(gpu="h100-sxm", nodes=4, gpus_per_node=4, steps=2)).result


@pytest.mark.parametrize("condition", marked(FOUND, LONG))
def test_a_rank_that_works_more_is_found(condition: str, tmp_path: Path) -> None:
    result = result_of(condition, tmp_path)
    assert len(result.ranks) == 2
    assert result.ranks[1].compute_s > 3 * result.ranks[0].compute_s
    assert any("train.py" in place and "to choose a device" not in place for place in result.coverage.rank_reads)


@pytest.mark.parametrize("condition", CONFINED)
def test_few_ranks_run_where_only_a_device_is_chosen_and_nothing_more_is_claimed(
    condition: str, tmp_path: Path
) -> None:
    coverage = result_of(condition, tmp_path).coverage
    assert (coverage.captured, coverage.compared) == (1, 1)
    assert coverage.rule == (
        "the last rank, at the end of every axis, ran beside rank 0; not seen: a use of the rank outside PyTorch other "
        "than to choose a device or print"
    )


def test_one_more_rank_runs_where_only_rank_0_is_told_apart(tmp_path: Path) -> None:
    """Rank 0 works more; what the others do is known from the second and the last."""
    result = result_of("dist.get_rank() == 0", tmp_path)
    coverage = result.coverage
    assert (coverage.captured, coverage.compared, coverage.assumed, coverage.undecided) == (2, 1, 13, 0)
    assert coverage.rule == (
        "the last rank, at the end of every axis, ran beside rank 0; the program reads its rank only to tell rank 0 "
        "from others, to choose a device or to print; the second ran, too"
    )
    assert result.ranks[0].compute_s > 3 * result.ranks[1].compute_s
