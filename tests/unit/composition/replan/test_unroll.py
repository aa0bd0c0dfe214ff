"""Added repetitions have objects of their own and refer to each other as the captured ones do."""

from __future__ import annotations

import numpy as np
import pytest

from presim.composition.replan.cycles import NotPeriodicError, find_cycle, program_calls
from presim.composition.replan.object_names import definitions
from presim.composition.replan.unroll import Numbers, Unroller
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind, Phase, Trace
from support.replanned_programs import Block, Event, Program, kernel


def unroller_of(trace: Trace) -> Unroller:
    defined_at = definitions(trace)
    return Unroller(trace, find_cycle(trace, trace.steps()[0], program_calls(trace, defined_at)), defined_at)


def test_numbers_of_added_objects_are_in_no_use() -> None:
    """Blocks do not overlap, and numbers go on where the repetitions of an earlier step ended."""
    program = Program([(0, 1, False), (0, 2, False)], events=[Event(0, 1, 0)], blocks=[Block(0, 1, 1, size=700)])
    trace = program.trace(6)
    numbers = Numbers.unused_by(trace)
    first = numbers.address, numbers.serial
    (insertion,), _ = unroller_of(trace).unrolled(trace.columns["object"].copy(), 3, numbers)
    kinds, objects = insertion.columns["kind"], insertion.columns["object"]
    addresses, serials = (np.sort(objects[kinds == kind]) for kind in (Kind.ALLOC, Kind.EVENT_RECORD))
    assert len(addresses) == len(serials) == 3
    assert np.diff(addresses).min() >= 700
    assert (int(addresses[0]), int(serials[0])) >= first
    assert numbers.address >= addresses[-1] + 700
    assert numbers.serial > serials[-1]


def test_references_that_do_not_repeat_are_refused() -> None:
    """Each repetition waits for another recording of those before the loop."""
    build = TraceBuilder()
    recordings = [build.record(stream=1) for _ in range(5)]
    for recording in recordings:
        build.work(kernel(3), scope="mlp", phase=Phase.FORWARD)
        build.wait(recording, stream=0)
        build.work(kernel(3), scope="mlp", phase=Phase.BACKWARD)
    build.step()
    says = r"entry \d+ \(STREAM_WAIT\) refers to something else than in the repetition before"
    with pytest.raises(NotPeriodicError, match=says):
        unroller_of(build.trace())
