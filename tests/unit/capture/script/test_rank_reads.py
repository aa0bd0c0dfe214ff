"""Recording where a script reads its rank."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

# A marked line reads the rank as the comment says; other lines do not count.
SCRIPT = """
import os, platform, socket, string, subprocess, torch
import torch.distributed as dist
os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["OTHER"] = "3", "1", "x"
use = lambda value: value
values = [use(os.environ["RANK"])]  # RANK
values += [use(os.getenv("LOCAL_RANK"))]  # LOCAL_RANK
values += [use(os.environ.get("SLURM_PROCID"))]  # SLURM_PROCID
values += [os.environ["OTHER"], os.getpid() > 0]
use(os.environb[b"RANK"])  # RANK
use(os.path.expandvars("$RANK"))  # RANK
use(string.Template("$RANK").substitute(os.environ))  # RANK
use(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PALS_RANKID")))  # OMPI_COMM_WORLD_RANK PALS_RANKID
copied = os.environ.copy()
values += [use(copied["RANK"])]  # RANK
list(copied.copy().items())  # environment
values += [use(copied.get("OTHER"))]
use(dict(os.environ))  # environment
use({name: value for name, value in os.environ.items()})  # environment
use({**os.environ})  # environment
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # LOCAL_RANK confined
use(torch.cuda.current_device())  # current_device
torch.ones(1, device=torch.cuda.current_device())
use(torch.ones(1, device="cuda").get_device())  # get_device
use(torch.cuda.get_device_properties(0).total_memory)
use(torch.cuda.get_device_properties(0).uuid)  # uuid
use(torch.ones(1).device.index)  # index
use([1].index(1))
use(socket.gethostname()), use(platform.node()), use(os.uname())  # host
subprocess.run(["true"])  # subprocess
for again in range(3):
    dist.init_process_group("fake", rank=3, world_size=4) if again == 0 else None
    values += [use(dist.get_rank())]  # get_rank
    use("first") if dist.get_rank() == 0 else None  # get_rank zero
    use("first") if dist.get_rank(dist.group.WORLD) == 0 else None  # get_rank
    use(dist.group.WORLD.rank())  # rank
    use(dist.group.WORLD.size()), use(dist.get_world_size())
    use(dist.get_process_group_ranks(dist.group.WORLD))  # get_process_group_ranks
    use(dist.get_group_rank(dist.group.WORLD, 1))  # get_group_rank
    mesh = dist.init_device_mesh("cpu", (4,)) if again == 0 else mesh
    use(mesh.get_local_rank())  # get_local_rank
    use(mesh.get_coordinate())  # get_coordinate
dist.new_group([1])  # new_group
store = dist.HashStore()
store.set("key", "value")
use(store.get("key"))  # store
from torch.utils.data import DistributedSampler
DistributedSampler(range(8))  # DistributedSampler
"""
_NAMES = {
    "to choose a device or print": "confined",
    "only to tell rank 0 from others": "zero",
    "host name": "host",
    "device uuid": "uuid",
    "device index": "index",
    "ProcessGroup.rank": "rank",
}
CODE = """
import runpy
from presim.capture.script.rank_reads import RankReads
from torch.testing._internal.distributed.fake_pg import FakeStore
import torch.distributed as dist
before = dist.get_rank
reads = RankReads(PATH)
reads.install()
results["same"] = dist.get_rank is before
values = runpy.run_path(PATH)
results["values"] = values["values"][:4] + [values["values"][-1]]
results["places"] = reads.all_places()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    emulated.require_cuda_torch()
    folder: Path = tmp_path_factory.mktemp("reads")
    (folder / "train.py").write_text(SCRIPT)
    return emulated.run(f"PATH = {str(folder / 'train.py')!r}\n{CODE}", folder).results


def test_each_place_that_reads_the_rank_is_recorded_once(found: dict[str, Any]) -> None:
    """Reads by PyTorch itself do not count."""
    reads: dict[int, set[str]] = defaultdict(set)
    for place in found["places"]:
        line, what = re.fullmatch(r".*train\.py:(\d+) \((.+)\)", place).groups()
        reads[int(line)] |= {_NAMES.get(part, part) for part in what.split(", ")}
    expected = {
        number: set(line.partition("  # ")[2].split())
        for number, line in enumerate(SCRIPT.splitlines(), 1)
        if "  # " in line
    }
    assert reads == expected


def test_patched_functions_return_the_same(found: dict[str, Any]) -> None:
    assert found["values"] == ["3", "1", None, "x", 3]
    assert found["same"], "torch.compile knows the function by its identity"
