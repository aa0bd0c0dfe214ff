"""GPUs for whose exact architecture PyTorch contains no code."""

from __future__ import annotations

from pathlib import Path

import pytest

import presim
from presim.errors import InputError

SCRIPT = """
import torch

table = torch.nn.Embedding(1000, 64, device="cuda")
rows = torch.randint(1000, (64, 128), device="cuda")
table(rows).sum().backward()  # CUB sorts the rows, with a tuning it looks up by the architecture of its code
"""


@pytest.mark.torch_cuda
@pytest.mark.parametrize("gpu", ["l4", "b300"])
def test_code_of_the_nearest_older_architecture_runs(gpu: str, tmp_path: Path) -> None:
    """8.9 and 10.3 run code compiled for 8.6 and 10.0."""
    script = tmp_path / "embedding.py"
    script.write_text(SCRIPT)
    result = presim.run(script, gpu=gpu, quiet=True)
    assert (result.exit, result.error) == ("ok", "")
    assert "aten::embedding_dense_backward" in {operator.name for operator in result.operators}


def test_a_gpu_that_pytorch_has_no_code_for_is_refused_before_the_run(tmp_path: Path) -> None:
    script = tmp_path / "empty.py"
    script.touch()
    with pytest.raises(InputError, match=r"no code for v100-32gb-sxm \(compute capability 7\.0, oldest is 7\.5\)"):
        presim.run(script, gpu="v100-32gb-sxm")
