"""What the result says of a script's steps."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim.analysis.notes.step_notes import step_notes
from presim.analysis.time.steps import find_steps
from presim.trace.builder import TraceBuilder
from presim.trace.schema import StepFacts
from presim.trace.signatures import Gemm
from support import fakes


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (StepFacts("train.py:7", updates=0), "no optimizer of PyTorch updates most of the parameters in one step"),
        (StepFacts("train.py:7", updates=0, is_update_missing=True), "--steps 0 runs the script to its end"),
        (StepFacts("train.py:7", iterations=8), "A step is 8 iterations of the loop at train.py:7: 1 optimizer step"),
        (StepFacts("eval.py:7", updates=0, trains=False), "the script does not train"),
    ],
)
def test_a_step_that_is_no_iteration_with_one_update_is_defined(facts: StepFacts, words: str) -> None:
    build = TraceBuilder()
    for _ in range(3):
        build.work(Gemm(4096, 4096, 4096, 1, "bfloat16"))
        build.step()
    trace = build.trace()
    trace = dataclasses.replace(trace, manifest=msgspec.structs.replace(trace.manifest, step=facts))
    timeline = fakes.simulate(fakes.priced(trace))
    (note,) = step_notes(trace, timeline, find_steps(trace, timeline))
    assert words in note
