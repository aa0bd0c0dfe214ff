"""A capture leaves no worker and no temporary folder, however it ends."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from support.command import processes_of, start

pytestmark = pytest.mark.torch_cuda
SCRIPT = """
import multiprocessing as mp, os, sys, time, torch
from multiprocessing import shared_memory

class Samples(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, index): return torch.randn(16, 16)

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Samples(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[2])
    lock = mp.get_context("spawn").Lock()
    model = torch.nn.Linear(16, 16).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, sample in enumerate(loader):
        model(sample.cuda()).sum().backward()
        optimizer.step()
        if step == 1 and sys.argv[1] == "raises":
            raise RuntimeError("mine")
        if step == 1 and sys.argv[1] == "waits":
            print("ready", flush=True)
            while True: torch.cuda.synchronize()
"""
ENDS = {"stops": (None, 0), "raises": (None, 3), "waits": (signal.SIGTERM, 143)}


@pytest.mark.parametrize(
    ("how", "context"),
    [
        ("raises", "fork"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in itertools.product(ENDS, ("fork", "spawn"))
            if case != ("raises", "fork")
        ),
    ],
)
def test_workers_of_a_data_loader_leave_nothing(how: str, context: str, tmp_path: Path) -> None:
    number, code = ENDS[how]
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "tmp").mkdir()
    words = ("run", "--gpu", "h100-sxm", "-q", tmp_path / "train.py", how, context)
    running = start(*words, cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"))
    assert running.stdout is not None
    if number is not None:
        assert running.stdout.readline() == "ready\n"
        os.kill(running.pid, number)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == code, errors
    assert processes_of(str(tmp_path)) == []
    assert not [name for name in os.listdir(tmp_path / "tmp") if name.startswith(("presim-", "pymp-"))]
