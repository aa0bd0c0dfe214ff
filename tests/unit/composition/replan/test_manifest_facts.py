"""What a manifest says of steps follows the added repetitions."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim.composition.replan.micro_batches import with_micro_batches
from presim.trace.schema import Kind, Manifest, Measured, StepFacts, StepPhase, Trace
from support.replanned import broken_rules
from support.replanned_programs import Program

PROGRAM = Program([(0, 1, False), (0, 2, False)], steps=2)


def with_facts(trace: Trace, **fields: object) -> Trace:
    manifest = msgspec.structs.replace(trace.manifest, **fields)
    return dataclasses.replace(trace, manifest=manifest)


def extended(trace: Trace, micro_batches: int) -> Manifest:
    (result,), _ = with_micro_batches([trace], micro_batches)
    assert broken_rules(trace, result) == []
    return result.manifest


def test_samples_grow_and_ranks_do_not() -> None:
    trace = with_facts(
        PROGRAM.trace(6),
        step=StepFacts(inputs=((600, 6), (600, 6)), iterations=6, sample="rows"),
        batch={"tokens": 600, "samples": 6, "data_parallel_ranks": 4},
        allocator={"peak_allocated_bytes": 512},
    )
    manifest = extended(trace, 9)
    assert manifest.step == StepFacts(inputs=((900, 9), (900, 9)), iterations=9, sample="rows")
    assert manifest.batch == {"tokens": 900, "samples": 9, "data_parallel_ranks": 4}
    assert manifest.allocator == {}  # PyTorch counted another program's


def test_a_measured_step_is_not_the_extended_one() -> None:
    measured = Measured((1, 2, 3), "h100-sxm", "hgx-h100", "ib-ndr-400", 1, 8, "profile.json", step_ns=9)
    manifest = extended(with_facts(PROGRAM.trace(6), measured=measured), 9)
    assert manifest.measured == msgspec.structs.replace(measured, step_ns=0)


@pytest.mark.parametrize(("runs", "per_cycle"), [(6, 1), (12, 2)])
def test_the_loop_of_the_cycle_runs_more_often(runs: int, per_cycle: int) -> None:
    """As many iterations per repetition as in the capture; other loops run as before."""
    trace = PROGRAM.trace(6)
    phases = []
    for step, part in enumerate(trace.steps()):
        kernels = part.start + trace.mask(Kind.WORK)[part].nonzero()[0]
        ends = (kernels[11] + 1, kernels[12] + 1, part.stop)  # the cycle, the update, and a loop without work
        names = (("loop", runs), ("update", 1), ("loop", runs))
        phases += [StepPhase(step, int(end), kind, "a.py:1", count) for end, (kind, count) in zip(ends, names)]
    trace = with_facts(trace, step=StepFacts(phases=tuple(phases)))
    manifest = extended(trace, 8)
    assert [phase.runs for phase in manifest.step.phases] == [runs + 2 * per_cycle, 1, runs] * 2
