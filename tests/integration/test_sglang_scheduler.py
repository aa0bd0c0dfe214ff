"""The fast simulator schedules like SGLang's own scheduler: equal requests, tokens and free pages in every step."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from presim.capture.setup.shim import SHIM_DIRECTORY
from presim.serving.engines.engine import Role
from presim.serving.launching.arguments import arguments
from presim.serving.launching.checkpoint_source import CheckpointSource
from presim.serving.serving_plan import ServingPlan

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("sglang")]
ROOT = Path(__file__).parent.parent.parent
SCRIPT = Path(__file__).parent / "scripts" / "sglang_schedules.py"


def _environment() -> dict[str, str]:
    """Of a process of its own, because SGLang needs PyTorch with the emulated libraries from the start."""
    libraries = f"{SHIM_DIRECTORY / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}


def test_every_step_of_random_workloads_is_the_same() -> None:
    words = [sys.executable, "-P", str(SCRIPT), "150"]  # -P: SGLang imports a name that a script beside it has
    ended = subprocess.run(words, env=_environment(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-4000:]


_PARSES = """
import argparse, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
parser.parse_args(sys.argv[1:])
"""


@pytest.mark.parametrize("role", ["any", "prefill", "decode"])
def test_sglang_knows_the_arguments_that_deployments_start_it_with(role: Role) -> None:
    plan = ServingPlan(2, dp=2, ep=True, kernels="sglang", weights="fp8", cache="fp8", max_model_len=4096)
    plan = dataclasses.replace(plan, async_scheduling=False, prefix_caching=False)
    source = CheckpointSource("some/model", is_path=False, quantization="fp8")
    ended = subprocess.run(
        [sys.executable, "-P", "-c", _PARSES, *arguments(source, plan, role)],
        env=_environment(),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
