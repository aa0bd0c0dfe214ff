"""The fast simulator schedules like vLLM's own scheduler: equal requests, tokens and blocks in every step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from presim.capture.setup.shim import SHIM_DIRECTORY

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm")]
ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent / "scripts" / "vllm_schedules.py"


def test_every_step_of_random_workloads_is_the_same() -> None:
    """In a separate process, because vLLM needs PyTorch with the emulated libraries from the start."""
    libraries = f"{SHIM_DIRECTORY / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    paths = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": paths, "VLLM_NO_USAGE_STATS": "1"}
    ended = subprocess.run([sys.executable, str(SCRIPT), "150"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
