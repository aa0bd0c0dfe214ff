"""The same script on 40 GB, where it does not fit, and on 80 GB, where it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presim.errors import ExitCode
from support.captured import EXAMPLES, run
from support.command import presim

GiB = 2**30

pytestmark = pytest.mark.torch_cuda


def test_on_40_gb_pytorch_itself_raises() -> None:
    """Its own error text with its own numbers; the result still shows what held the memory."""
    result = run("out_of_memory.py", gpu="a100-40gb-sxm").result
    assert result.exit == "out_of_memory"
    assert result.memory.fits is False
    assert re.search(r"CUDA out of memory\. Tried to allocate [\d.]+ GiB\. GPU 0 has a total capacity of", result.error)
    assert 35 * GiB < result.memory.peak_reserved_bytes < 40 * GiB
    held = {category.name: category.bytes for category in result.memory.by_category}
    assert held["parameter"] == 12 * 16384 * 16384 * 2


def test_the_command_line_reports_whether_the_job_fits(tmp_path: Path) -> None:
    """Also for a saved job and another GPU."""
    script, job = EXAMPLES / "out_of_memory.py", tmp_path / "job"
    assert presim("run", "--gpu", "a100-40gb-sxm", "-q", script).returncode == ExitCode.DOES_NOT_FIT
    assert presim("run", "--gpu", "a100-80gb-sxm", "-q", "--save", job, script).returncode == ExitCode.STANDS
    assert presim("simulate", job, "-q").returncode == ExitCode.STANDS
    assert presim("simulate", job, "--gpu", "a100-40gb-sxm", "-q").returncode == ExitCode.DOES_NOT_FIT


def test_on_80_gb_it_fits() -> None:
    """Parameters, gradients and two moments in bf16, and activations of 12 layers."""
    result = run("out_of_memory.py", gpu="a100-80gb-sxm").result
    assert result.exit == "ok"
    assert result.memory.fits is True
    assert 40 * GiB < result.memory.peak_allocated_bytes < 80 * GiB


def test_moments_created_by_the_failing_step_are_optimizer_state(tmp_path: Path) -> None:
    """Parameters, gradients and one moment of 16 GiB each leave no room for the second moment."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(65536, 65536, bias=False, device='cuda')\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "model(torch.ones(16, 65536, device='cuda')).sum().backward()\n"
        "optimizer.step()\n"
    )
    result = run(str(script), gpu="a100-80gb-sxm").result
    assert result.exit == "out_of_memory"
    held = {category.name: category.bytes for category in result.memory.by_category}
    assert (held["parameter"], held["gradient"]) == (16 * GiB, 16 * GiB)
    assert held["optimizer_state"] == 32 * GiB
