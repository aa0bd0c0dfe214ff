"""Recording where a script reads its rank."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

SCRIPT = """
import os
import torch.distributed as dist
os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["OTHER"] = "3", "1", "x"
values = [int(os.environ["RANK"]), os.getenv("LOCAL_RANK"), os.environ.get("SLURM_PROCID"), os.environ["OTHER"]]
copied = os.environ.copy(), {name: value for name, value in os.environ.items()}
for again in range(3):
    dist.init_process_group("fake", rank=3, world_size=4) if again == 0 else None
    rank = dist.get_rank()
    mesh = dist.init_device_mesh("cpu", (4,)) if again == 0 else mesh
    mesh.get_local_rank()
from torch.utils.data import DistributedSampler
DistributedSampler(range(8))
"""
CODE = """
import runpy
from presim.capture.script.rank_reads import RankReads
from torch.testing._internal.distributed.fake_pg import FakeStore
import torch.distributed as dist
before = dist.get_rank
reads = RankReads()
reads.install()
results["same"] = dist.get_rank is before
values = runpy.run_path(PATH)
results["values"] = [*values["values"], values["rank"]]
results["places"] = list(reads.places)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    emulated.require_cuda_torch()
    folder: Path = tmp_path_factory.mktemp("reads")
    (folder / "train.py").write_text(SCRIPT)
    return emulated.run(f"PATH = {str(folder / 'train.py')!r}\n{CODE}", folder).results


def test_each_place_that_reads_the_rank_is_recorded_once(found: dict[str, Any]) -> None:
    """Iterating over all variables and reads by PyTorch itself do not count."""
    places = [re.sub(r".*/", "", place) for place in found["places"]]
    assert places == [
        "train.py:5 (RANK)",
        "train.py:5 (LOCAL_RANK)",
        "train.py:5 (SLURM_PROCID)",
        "train.py:9 (get_rank)",
        "train.py:11 (get_local_rank)",
        "train.py:13 (DistributedSampler)",
    ]


def test_patched_functions_return_the_same(found: dict[str, Any]) -> None:
    assert found["values"] == [3, "1", None, "x", 3]
    assert found["same"], "torch.compile knows the function by its identity"
