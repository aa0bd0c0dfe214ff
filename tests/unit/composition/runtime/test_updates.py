"""Optimizers: the memory of their states and the bytes of their updates; GPUs that cannot be captured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from presim import hardware
from presim.composition.compose import compose
from presim.composition.plan import Plan
from presim.composition.runtime.updates import UPDATES
from presim.evaluation.evaluate_traces import evaluate
from presim.trace.schema import Category, Kind, Trace
from presim.trace.signatures import Attention
from support.models import llama

pytestmark = pytest.mark.torch_cuda


def trace(optimizer: str) -> Trace:
    cluster = hardware.choose_cluster(gpu="h100-sxm", world_size=8)
    return compose(llama(), Plan(sequence=512, optimizer=optimizer), cluster).traces[0]  # type: ignore[arg-type]


def states(optimizer: str) -> int:
    """Bytes of blocks that are told to be optimizer states."""
    columns = trace(optimizer).columns
    told = (columns["kind"] == Kind.RETAG) & (columns["value"] == Category.OPTIMIZER_STATE)
    return int(columns["value"][np.flatnonzero(told) - 1].sum())


def test_states_are_as_large_as_their_numbers() -> None:
    full, half, eighth, one, none = map(states, ("adamw", "adamw-bf16", "adamw-8bit", "momentum", "sgd"))
    assert none == 0
    assert full > 1.9 * half > 3.4 * eighth > 0
    assert full == pytest.approx(2 * one, rel=0.05)


@pytest.mark.parametrize("optimizer", UPDATES)
def test_an_update_reads_its_gradient_and_writes_the_rest(optimizer: str) -> None:
    taken, given = UPDATES[optimizer].traffic(1 << 20, 4)
    assert taken - given == 4 << 20
    assert given >= 4 << 20


@pytest.mark.parametrize("gpu", ["mi300x", "mi355x", "own"])
def test_gpus_that_cannot_be_captured_are_composed_and_priced(gpu: str, tmp_path: Path) -> None:
    """AMD's, and a device of the user's own; neither has cuDNN where it is not NVIDIA's."""
    if gpu == "own":
        known = Path(hardware.__file__).parent / "data" / "gpus" / "mi300x.toml"
        gpu = str(tmp_path / "npu.toml")
        Path(gpu).write_text(known.read_text().replace("AMD Instinct MI300X", "Own NPU"))
    cluster = hardware.choose_cluster(gpu=gpu, world_size=8)
    job = compose(llama(), Plan(sequence=512), cluster)
    result = evaluate(job, cluster).result
    assert result.step_time_s
    assert {one.backend for one in job.traces[0].signatures if isinstance(one, Attention)} == {"flash"}
