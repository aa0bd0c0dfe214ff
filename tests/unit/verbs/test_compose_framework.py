"""A framework's captures are read as the plan's: its samples, whatever part of them a rank shows."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim.analysis.time.throughput import data_parallel_ranks
from presim.composition.plan import Plan
from presim.trace.schema import StepFacts
from presim.verbs.compose_framework import _with_batch
from support.replanned_programs import Program


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"context": 4}, (8 * 2048, 8, 4)),  # a rank reads a quarter of each of its sequences
        ({"tensor": 2, "micro_batch": 2}, (4 * 2048, 4, 8)),
        ({"pipeline": 2, "context": 2}, (8 * 2048, 8, 4)),
    ],
)
def test_a_step_has_the_samples_of_its_plan(fields: dict[str, int], expected: tuple[int, int, int]) -> None:
    trace = Program([(0, 1, False)], steps=2).trace(6)
    step = StepFacts(inputs=((512, 1), (1024, 2)))
    manifest = msgspec.structs.replace(trace.manifest, world_size=16, step=step, batch={"tokens": 1024})
    result = _with_batch(dataclasses.replace(trace, manifest=manifest), Plan(sequence=2048, global_batch=32, **fields))
    tokens, samples, ranks = expected
    assert result.manifest.batch == {"tokens": tokens, "samples": samples, "data_parallel_ranks": ranks}
    assert result.manifest.step.inputs == ((512, 1), (tokens, samples))
    assert data_parallel_ranks(result) == ranks
