"""A composed pipeline stage equals captures of PyTorch's schedules with FSDP2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from presim.composition.capture_comparison import work
from presim.composition.compose import compose
from presim.composition.plan import Plan
from presim.evaluation.options import RunOptions
from presim.hardware.cluster_choice import choose_cluster
from presim.trace import job_store
from presim.trace.schema import Kind, Trace
from support.captured import SCRIPTS, evaluated
from support.models import llama

pytestmark = [pytest.mark.torch_cuda]


@pytest.mark.long
def test_a_composed_stage_equals_the_capture(tmp_path: Path) -> None:
    """The stages' products, attention and collectives are equal as multisets, their peak memory within 3 %."""
    words = "--stages 2 --schedule 1F1B --micro-batches 3"
    options = RunOptions(gpu="h100-sxm", world_size=4, steps=3, save=str(tmp_path / "job"))
    evaluated(SCRIPTS / "llama_pipeline.py", *words.split(), options=options)
    captured = job_store.load(tmp_path / "job").traces
    plan = Plan(sequence=512, pipeline=2, global_batch=6, clip=False)
    composed = compose(llama(8), plan, choose_cluster(gpu="h100-sxm", world_size=4)).traces
    assert [trace.manifest.rank for trace in composed] == [0, 2]
    for trace in composed:
        theirs = captured[trace.manifest.rank]
        assert work(trace) == work(theirs)
        assert peak(trace) == pytest.approx(peak(theirs), rel=0.03)


def peak(trace: Trace) -> int:
    """Peak bytes of live blocks."""
    kinds, values = trace.columns["kind"], trace.columns["value"]
    change = np.where(kinds == Kind.ALLOC, values, 0) - np.where(kinds == Kind.FREE, values, 0)
    return int(np.cumsum(change).max())
