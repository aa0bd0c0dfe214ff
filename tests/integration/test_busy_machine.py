"""Host time is CPU time corrected for other processes, so the machine's load makes little difference."""

from __future__ import annotations

import os
import runpy
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest

from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import RunOptions
from support.captured import EXAMPLES, evaluated

pytestmark = [pytest.mark.torch_cuda, pytest.mark.long, pytest.mark.timeout(1200)]

NEIGHBOURS = runpy.run_path(str(EXAMPLES.parent / "validation" / "long_stretches.py"))


def busy(processes: int) -> AbstractContextManager[None]:
    """A number of processes that each use a core."""
    return cast("AbstractContextManager[None]", NEIGHBOURS["beside"]([NEIGHBOURS["SPIN"]] * processes))


def capture(script: Path, world_size: int, *arguments: str) -> Evaluation:
    options = RunOptions(gpu="h100-sxm", world_size=world_size, rank=0, steps=0)
    return evaluated(script, *arguments, options=options)


def test_an_oversubscribed_machine_does_not_change_the_result() -> None:
    """Four times as many busy processes as cores: the wall clock is five times slower.

    A step that waits for its device is the same. The host's own time is not that of a quiet machine, whose caches and
    cores are not shared: up to twice was seen, while time that also counted the wait for a core would be five times.
    """
    pytest.importorskip("transformers")
    script = EXAMPLES / "llama_fsdp2.py"
    quiet = capture(script, 8)
    with busy(4 * (os.cpu_count() or 1)):
        loaded = capture(script, 8)
    assert quiet.result.step_time_s is not None
    assert loaded.result.step_time_s == pytest.approx(quiet.result.step_time_s, rel=0.01)
    spent = [int(item.priced.trace.columns["host_ns"].sum()) for item in (quiet, loaded)]
    assert spent[1] < 3 * spent[0]


@pytest.mark.needs("megatron.core")
def test_a_launch_bound_step_takes_the_same_on_an_oversubscribed_machine() -> None:
    """A small GPT whose host work is known from other captures: by the clock it would be five times.

    Within a tenth was seen, on a machine of two cores beside other work (docs/decisions/host-time.md).
    """
    script = EXAMPLES / "megatron_gpt.py"
    small = ("--model", "tiny", "--micro-batches", "4", "--steps", "6")
    quiet = capture(script, 1, *small)
    with busy(4 * (os.cpu_count() or 1)):
        loaded = capture(script, 1, *small)
    assert quiet.result.step_time_s is not None
    assert loaded.result.step_time_s is not None
    assert any("for the host" in note for note in quiet.result.notes)
    assert 2 / 3 < loaded.result.step_time_s / quiet.result.step_time_s < 3 / 2
