"""STEP records from marks."""

from __future__ import annotations

import numpy as np
import pytest

from presim.capture.reading.log import RECORD
from presim.capture.reading.step_records import LoggedSteps, find_steps, repeated_steps, with_steps
from presim.capture.script.package_folders import PACKAGE_FOLDERS
from presim.capture.steps.marks import Event, Mark
from presim.capture.steps.positions import Position
from presim.capture.steps.stopping import Stop
from presim.trace.schema import Kind, StepFacts
from support.capture_logs import LogBuilder
from support.script_loops import marks

STEP = "event('model');event('backward');event('update')"
MINI_BATCHES = f"for _ in range(3):\n for _ in range(20): event('model 0')\n for _ in range(2): {STEP}"


def test_steps_end_where_the_script_was_stopped() -> None:
    found = find_steps(marks(f"for _ in range(6): {STEP}"), Stop(3, _path(f"for _ in range(6): {STEP}")))
    assert found.end_records == (21, 51, 81)
    assert (found.facts.iterations, found.facts.updates) == (1, 1)


def _path(code: str) -> tuple[str, ...]:
    return marks(code)[-1].position.nest


def test_the_facts_say_what_a_step_is() -> None:
    facts = find_steps(marks(MINI_BATCHES), None).facts
    assert (facts.loop, facts.iterations, facts.updates) == ("1", 1, 2)
    facts = find_steps(
        marks("for i in range(9):\n event('model');event('backward')\n if i % 2: event('update')"), None
    ).facts
    assert (facts.loop, facts.iterations, facts.updates) == ("1", 2, 1)


def test_another_rank_s_loop_is_taken_where_this_one_has_it() -> None:
    written = marks(MINI_BATCHES)
    inner = written[-1].position.nest
    assert find_steps(written, Stop(0, inner)).facts.loop == "3"
    assert find_steps(written, Stop(0, ("elsewhere",))).facts.loop == "1"


def test_inputs_after_the_last_reset_count_for_their_step() -> None:
    written = []
    for mark in marks(f"for _ in range(4): {STEP}"):
        written.append(mark)
        if mark.event is Event.MODEL:
            unchanged = Position(mark.position.nest, len(mark.position.nest))
            if mark.records == 30:
                written.append(Mark(mark.records + 2, Event.RESET, unchanged))
            written.append(Mark(mark.records + 5, Event.INPUT, unchanged, 100, mark.records + 1))
    assert find_steps(written, None).facts.inputs == ((0, 0), (100, 31), (100, 61), (100, 91))


def test_steps_begin_with_the_first_iteration_of_their_loop() -> None:
    """What a probe before it reads counts for no step."""
    written = []
    for mark in marks(f"{STEP}\nfor _ in range(4): {STEP}"):
        written.append(mark)
        if mark.event is Event.MODEL:
            unchanged = Position(mark.position.nest, len(mark.position.nest))
            written.append(Mark(mark.records + 5, Event.INPUT, unchanged, 100, mark.records + 1))
    steps = find_steps(written, None)
    assert (steps.facts.begin, steps.end_records) == (30, (51, 81, 111, 141))
    assert steps.facts.inputs == ((100, 31), (100, 61), (100, 91), (100, 121))
    assert find_steps(marks("\n".join([STEP] * 3)), None).facts.begin == 0


@pytest.mark.parametrize("updates", [1, 3])
def test_the_first_step_of_a_script_without_loops_begins_with_the_script(updates: int) -> None:
    """PyTorch's own loop within the update is no beginning: the model ran before it."""
    torch_loop = (f"{PACKAGE_FOLDERS[0]}torch/optim/optimizer.py:10",)
    written = []
    for update in range(updates):
        written.append(Mark(30 * update, Event.MODEL, Position((), 0)))
        written.append(Mark(30 * update + 10, Event.BACKWARD, Position((), 0)))
        written.append(Mark(30 * update + 20, Event.UPDATE, Position(torch_loop, 0, is_entered=True)))
    steps = find_steps(written, None, has_ended=True)
    assert (steps.facts.begin, steps.facts.loop) == (0, "")
    assert steps.end_records == tuple(30 * update + 21 for update in range(updates))


def test_an_iteration_that_failed_is_a_step_if_it_had_its_updates() -> None:
    assert len(find_steps(marks(f"for _ in range(3): {STEP}"), None).end_records) == 3
    assert len(find_steps(marks(f"for _ in range(3): {STEP}; event('model')"), None).end_records) == 3
    assert len(find_steps(marks("for _ in range(3): event('model');event('backward')"), None).end_records) == 2
    assert (
        len(find_steps(marks("for _ in range(3): event('model');event('backward')"), None, has_ended=True).end_records)
        == 3
    )


def test_only_the_updates_that_end_steps_stay_in_the_log() -> None:
    build = LogBuilder()
    for kind in (Kind.WORK, Kind.STEP, Kind.WORK, Kind.STEP, Kind.WORK, Kind.WORK, Kind.STEP, Kind.WORK):
        build.record(kind, cpu_ns=10 * len(build.records()), object=77)
    log = with_steps(build.log(), LoggedSteps((4, 7), StepFacts()), cut=True)
    assert [Kind(kind).name for kind in log.records["kind"]] == ["WORK", "WORK", "STEP", "WORK", "WORK", "STEP"]
    assert log.records["object"][log.records["kind"] == Kind.STEP].tolist() == [0, 1]
    assert len(with_steps(build.log(), LoggedSteps((4, 7), StepFacts()), cut=False).records) == 7


def test_a_step_without_an_update_gets_a_record_that_takes_no_time() -> None:
    build = LogBuilder()
    for number in range(6):
        build.record(Kind.WORK, cpu_ns=10 * number)
    records = with_steps(build.log(), LoggedSteps((2, 5), StepFacts()), cut=False).records
    steps = np.flatnonzero(records["kind"] == Kind.STEP)
    assert steps.tolist() == [2, 6]
    assert records["cpu_ns"][steps].tolist() == [10, 40]


def test_steps_without_marks_begin_at_a_launch_and_end_behind_one() -> None:
    kinds = [Kind.ALLOC, Kind.WORK, *[Kind.WORK, Kind.ALLOC, Kind.COLLECTIVE] * 4, Kind.FREE]
    records = np.zeros(len(kinds), RECORD)
    records["kind"] = [int(kind) for kind in kinds]
    records["work"] = [0, 7, *[1, 0, 2] * 4, 0]
    steps = repeated_steps(records)
    assert steps is not None
    assert (steps.facts.begin, steps.end_records, steps.facts.launches) == (2, (5, 8, 11, 14), 2)
    assert repeated_steps(records[:4]) is None
