"""The fast simulator schedules like SGLang's own scheduler: equal requests, tokens and free pages in every step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from presim.capture.setup.shim import SHIM_DIRECTORY

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("sglang"), pytest.mark.slow]
ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent / "scripts" / "sglang_schedules.py"


def test_every_step_of_random_workloads_is_the_same() -> None:
    """In a separate process, because SGLang needs PyTorch with the emulated libraries from the start."""
    libraries = f"{SHIM_DIRECTORY / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    words = [sys.executable, "-P", str(SCRIPT), "150"]  # -P: SGLang imports a name that a script beside it has
    ended = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
