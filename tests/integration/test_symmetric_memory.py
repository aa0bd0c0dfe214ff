"""Programs with shared GPU memory run as far as possible without it; other uses are refused."""

from __future__ import annotations

import pytest

from presim.evaluation.options import RunOptions
from presim.trace.signatures import Copy, Gemm, Kernel
from support.captured import SCRIPTS, Job, evaluated

pytestmark = pytest.mark.torch_cuda

RANKS = 4


def test_fused_operators_exchange_pieces_during_partial_products(capfd: pytest.CaptureFixture[str]) -> None:
    """Each rank's rows arrive by a separate copy and are multiplied on its stream."""
    options = RunOptions(gpu="h100-sxm", steps=0, world_size=RANKS, ranks="0")
    job = Job(evaluated(SCRIPTS / "async_tp.py", options=options))
    assert (job.result.exit, job.result.error) == ("ok", "")
    work = job.work()
    said = list(zip(job.signatures(work), job.trace.columns["stream"][work].tolist(), strict=True))
    pulled = [stream for one, stream in said if isinstance(one, Copy) and one.direction == "peer"]
    products = [(one.m, one.n, one.k, stream) for one, stream in said if isinstance(one, Gemm)]
    own, other = products[0][3], pulled[0]
    assert own != other
    assert pulled == [other, own, other] * 2  # of each other rank, by two streams in turn
    gathered = [(512, 4096, 1024, stream) for stream in (own, other, own, other)]
    scattered = [(512, 1024, 4096, stream) for stream in (other, own, other, own)]
    assert products == gathered + scattered
    assert {one.bytes for one, _ in said if isinstance(one, Copy) and one.direction == "peer"} == {512 * 1024 * 2}
    assert [one.name for one, _ in said if isinstance(one, Kernel)] != []  # PyTorch's pause, which moves nothing
    assert job.collectives() == []
    assert any(note.startswith("Asynchronous tensor parallelism exchanged its pieces") for note in job.result.notes)
    assert "presim does not emulate shared GPU memory" in capfd.readouterr().err
