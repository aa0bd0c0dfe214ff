"""Which phases a step has. To add a case, add a line: a script, and the phases of its third step."""

from __future__ import annotations

import pytest

from presim.capture.reading.step_records import find_steps
from support.script_loops import marks

MODEL, UPDATE = "event('model');event('backward')", "event('optimizer');event('update')"

CASES: dict[str, tuple[str, list[tuple[str, str, int]]]] = {  # kind, line and runs of each phase
    "a plain loop": (f"for _ in range(5): {MODEL}; {UPDATE}", []),
    "no loop": ("\n".join([f"{MODEL}; {UPDATE}"] * 3), []),
    "two optimizers after one backward pass": (f"for _ in range(5): {MODEL}; {UPDATE}; {UPDATE}", []),
    "a loop of optimizers": (f"for _ in range(5):\n {MODEL}\n for _ in range(2): {UPDATE}", []),
    "accumulation by remainder": (f"for i in range(13):\n {MODEL}\n if i % 4 == 3: {UPDATE}", []),
    "an inner loop with one iteration": (
        f"for _ in range(5):\n for _ in range(1): event('data')\n for _ in range(1): {MODEL}; {UPDATE}",
        [],
    ),
    "accumulation in an inner loop": (
        f"for _ in range(5):\n for _ in range(4): {MODEL}\n {UPDATE}",
        [("loop", "2", 4), ("update", "3", 1)],
    ),
    "a critic's updates before the generator's": (
        f"for _ in range(5):\n for _ in range(5): {MODEL}; {UPDATE}\n {MODEL}; {UPDATE}",
        [("loop", "2", 5), ("update", "3", 1)],
    ),
    "a critic's update before the generator's": (
        f"for _ in range(5):\n {MODEL}; {UPDATE}\n {MODEL}; {UPDATE}",
        [("update", "2", 1), ("update", "3", 1)],
    ),
    "a generator in some iterations": (
        f"for i in range(9):\n {MODEL}; {UPDATE}\n if i % 3 == 2: {MODEL}; {UPDATE}",
        [("update", "2", 1), ("update", "3", 1)],
    ),
    "epochs of mini-batches after a rollout": (
        "for _ in range(5):\n for _ in range(20): event('model 0')\n"
        f" for _ in range(3):\n  for _ in range(2): {MODEL}; {UPDATE}",
        [("loop", "2", 20), ("loop", "4", 6)],
    ),
    "evaluation before every third step": (
        f"for i in range(9):\n if i % 3 == 2:\n  for _ in range(5): event('model 0')\n {MODEL}; {UPDATE}",
        [("loop", "3", 5), ("update", "4", 1)],
    ),
    "tokens after a prompt": (
        "for _ in range(5):\n event('model 0')\n for _ in range(8): event('model 0')",
        [("call", "2", 1), ("loop", "3", 8)],
    ),
}


@pytest.mark.parametrize(("code", "expected"), CASES.values(), ids=CASES)
def test_a_step_has_the_phases_that_its_loops_and_updates_delimit(
    code: str, expected: list[tuple[str, str, int]]
) -> None:
    phases = [phase for phase in find_steps(marks(code), None).facts.phases if phase.step == 2]
    assert [(phase.kind, phase.line, phase.runs) for phase in phases] == expected


def test_phases_end_where_the_next_begins_and_the_last_with_its_step() -> None:
    steps = find_steps(marks(CASES["accumulation in an inner loop"][0]), None)
    ends = [phase.end for phase in steps.facts.phases if phase.step < 2]
    assert ends == [80, 91, 180, 191]
    assert steps.end_records[:2] == (91, 191)


def test_data_belongs_to_the_phase_that_it_is_read_for() -> None:
    code = f"for _ in range(5):\n for _ in range(4): {MODEL}\n event('data')\n {MODEL}; {UPDATE}"
    assert [phase.end for phase in find_steps(marks(code), None).facts.phases][:2] == [80, 121]
