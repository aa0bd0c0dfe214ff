"""Real scripts on the emulated device, from launch to result: each states what must come out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import presim
from presim.result import Result

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
GiB = 2**30

pytestmark = pytest.mark.torch_cuda


def run(script: str, *args: str, **options: object) -> Result:
    """An example, quietly."""
    settings: dict[str, object] = {"gpu": "h100-sxm", "quiet": True, **options}
    return presim.run(EXAMPLES / script, *args, **settings)  # type: ignore[arg-type]


def test_llama_8b_fsdp2_on_128() -> None:
    """The main job: it fits, computes for most of its step, and its parameters are the published 8.03 G."""
    result = run("llama_fsdp2.py", nodes=16)
    assert result.exit == "ok" or result.exit == "stopped"
    assert result.model.parameters == 8_030_261_248
    assert result.memory.fits
    assert 0.3 < result.mfu < 0.75
    assert result.time.compute_s < result.step_time_s < 2 * result.time.compute_s
    assert {collective.kind for collective in result.collectives} >= {"all_gather", "reduce_scatter"}
