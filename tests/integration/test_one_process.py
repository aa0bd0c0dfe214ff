"""One process that uses several GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command import presim

pytestmark = [pytest.mark.torch_cuda, pytest.mark.long]

REPLICATES = """
import torch

model = torch.nn.DataParallel(torch.nn.Linear(4096, 4096).cuda())
for _ in range(4):
    model(torch.ones(512, 4096, device="cuda")).sum().backward()
    model.zero_grad()
"""
SPLITS = """
import torch

first, second = torch.nn.Linear(1024, 1024).to("cuda:0"), torch.nn.Linear(1024, 16384).to("cuda:1")
for _ in range(4):
    second(first(torch.ones(512, 1024, device="cuda:0")).to("cuda:1")).sum().backward()
"""


@pytest.mark.parametrize(("program", "mebibytes"), [(REPLICATES, (64, 320)), (SPLITS, (64, 320))])
def test_it_runs_once_and_each_gpu_has_its_own_memory(tmp_path: Path, program: str, mebibytes: tuple[int, int]) -> None:
    """Copies would hold twice as much together, and read two batches."""
    script, report = tmp_path / "one.py", tmp_path / "r.json"
    script.write_text(program)
    ended = presim("run", "--gpu", "h100-sxm", "--gpus-per-node", "2", "--ranks", "0", "-q", "--json", report, script)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(report.read_text())
    assert result["throughput"]["data_parallel_ranks"] == 1
    peak = result["memory"]["peak_reserved_bytes"]
    assert mebibytes[0] << 20 < peak < mebibytes[1] << 20
    assert any(note.startswith("One process uses 2 of 2 GPUs") for note in result["notes"])
    assert not any("still grows" in note for note in result["notes"])
