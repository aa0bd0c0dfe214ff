"""Programs that ask for memory which GPUs share run as far as they can without it, and are told where they cannot."""

from __future__ import annotations

import pytest

from presim.options import RunOptions
from presim.verbs import run_and_evaluate
from support.captured import SCRIPTS, Job

pytestmark = pytest.mark.torch_cuda


def test_fused_operators_are_a_collective_and_a_product(capfd: pytest.CaptureFixture[str]) -> None:
    """Of two ranks, in the order of the program; the result says what is not counted."""
    options = RunOptions(gpu="h100-sxm", steps=0, world_size=2, ranks="0")
    job = Job(run_and_evaluate([str(SCRIPTS / "async_tp.py")], options, stdout=2))
    assert (job.result.exit, job.result.error) == ("ok", "")
    exchanged = [(one.kind, one.bytes) for one in job.collectives()]
    assert exchanged == [("all_gather", 2 * 1024 * 1024), ("reduce_scatter", 2 * 1024 * 1024)]  # all rows, in bf16
    assert job.gemm_flops() == 2 * (2 * 1024 * 1024 * 4096)
    assert any(note.startswith("Asynchronous tensor parallelism ran as collectives") for note in job.result.notes)
    assert "presim does not emulate memory that GPUs share" in capfd.readouterr().err
