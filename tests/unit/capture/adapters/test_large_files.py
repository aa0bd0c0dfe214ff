"""Large checkpoints are mapped; what is saved over one does not change what was loaded from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

SCRIPT = """
import torch
from presim.capture.adapters import large_files
large_files._LARGE_BYTES = 1 << 12
large_files.install()
path = os.environ["CHECKPOINT"]
torch.save({"x": torch.arange(4096), "step": torch.tensor(3)}, path)
loaded = torch.load(path)
assert "ckpt" in open("/proc/self/maps").read()
torch.save({"x": torch.zeros(1)}, path)
assert loaded["x"].tolist() == list(range(4096)) and loaded["step"].item() == 3
assert torch.load(path)["x"].tolist() == [0.0]
with open(path, "rb") as stream:
    assert torch.load(stream)["x"].tolist() == [0.0]
"""


def test_a_mapped_checkpoint_survives_being_saved_again(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    emulated.run(SCRIPT, tmp_path, CHECKPOINT=str(tmp_path / "ckpt"))
