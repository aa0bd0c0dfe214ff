"""An installed vLLM groups layers as the committed answers say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from presim.capture.setup.shim import SHIM_DIRECTORY

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm")]
ROOT = Path(__file__).parent.parent.parent


def test_the_committed_answers_are_vllms() -> None:
    libraries = f"{SHIM_DIRECTORY / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    paths = f"{ROOT / 'src'}:{ROOT / 'tests'}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": paths, "VLLM_NO_USAGE_STATS": "1"}
    words = [sys.executable, "-m", "support.kv_layouts"]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]
    committed = ROOT / "tests" / "unit" / "serving" / "kv" / "vllm_groups.json"
    assert json.loads(ended.stdout.splitlines()[-1]) == json.loads(committed.read_text())
