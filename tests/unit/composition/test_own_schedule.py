"""Schedules of one's own: as PyTorch writes them, checked for what is missing and for deadlocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.composition.orders import orders
from presim.composition.own_schedule import parse, splits_backward
from presim.composition.pass_orders import interleaved_passes
from presim.composition.pipeline_steps import BACKWARD, FORWARD, INPUT, WEIGHT
from presim.composition.plan import read_plan
from presim.composition.plan_check import check
from presim.composition.schedule_source import read_passes
from presim.errors import InputError

LETTERS = {FORWARD: "F", BACKWARD: "B", INPUT: "I", WEIGHT: "W"}


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_a_known_schedule_written_as_a_file_is_that_schedule(ranks: int, chunks: int, rounds: int, split: bool) -> None:
    """Passes, messages and waits are those of the built-in one."""
    rows = [
        ",".join(
            "" if step is None else f"{step.stage}{LETTERS[step.kind]}{step.micro}"
            for step in interleaved_passes(rank, ranks, chunks, rounds * ranks, split)
        )
        for rank in range(ranks)
    ]
    name = "zero-bubble" if split else "interleaved"
    assert parse(rows, ranks, ranks * chunks, rounds * ranks).orders() == orders(name, ranks, chunks, rounds * ranks)
    assert splits_backward(rows) == split


CASES = [  # rows of two ranks with one stage each and two micro-batches, and the sentence
    (
        ["0F0,0F1,0B0", "1F0,1B0,1F1,1B1"],
        "rank 0 of the schedule has not one forward pass and then B, or I and W, for stage 0 of micro-batch 1 "
        "(forward)",
    ),
    (
        ["0F0,0F1,0B0,0B1", "1F0,1B0,1B1,1F1"],
        "rank 1 of the schedule has not one forward pass and then B, or I and W, for stage 1 of micro-batch 1 "
        "(backward, then forward)",
    ),
    (
        ["0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1"],
        "the schedule deadlocks: rank 0 waits at 0B0 for 1B0; rank 1 waits at 1F1 for 0F1",
    ),
    (["0F0,0F1,0B0,0B1"], "the schedule has 1 rows, and the pipeline 2 ranks; give a row for each rank"),
    (
        ["0F0,0F1,0B0,0B1,2F0", "1F0,1B0,1F1,1B1"],
        "rank 0 of the schedule has 2F0, and there are stages 0 to 1",
    ),
    (
        ["0F0,0F1,0B0,0B1,1F1", "1F0,1B0,1B1"],
        "stage 1 of the schedule has passes on rank 0 and on rank 1; a stage lies on one rank",
    ),
    (
        ["0F0,0F1,0B0,0B1", ""],
        "the schedule has no passes of stage 1, and pipeline x virtual is 2 stages; give each stage passes",
    ),
    (
        ["0F0,0F1,0B0,0B1,1F0,1B0,1F1,1B1", ""],
        "rank 1 of the schedule has no passes; give each rank a stage",
    ),
    (
        ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1", "1B0 -> 0F1 -> 0B1"],
        "the schedule has the dependency '1B0 -> 0F1 -> 0B1'; give two passes with an arrow: 1B0 -> 0F1",
    ),
    (
        ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1", "1W0 -> 0F1"],
        "the dependency '1W0 -> 0F1' names 1W0, which is in no row of the schedule",
    ),
    (
        ["0F0,0F1,0B0,0B1", "1F0,1F1,1B0,1B1", "1B0 -> 0F1"],
        "the schedule deadlocks: rank 0 waits at 0F1 for 1B0; rank 1 waits at 1F1 for 0F1",
    ),
    (["0F0,0F1,0B1,0B0", "1F0,1B0,1F1,1B1", "0B0->0B1"], "the schedule deadlocks: rank 0 waits at 0B1 for 0B0"),
    (["0F0,0X0", ""], "rank 0 of the schedule has '0X0'; a pass is stage, F, B, I or W, micro-batch: 0F3"),
    (["0F2", ""], "rank 0 of the schedule has 0F2, and a step has micro-batches 0 to 1"),
]


@pytest.mark.parametrize(("rows", "message"), CASES)
def test_a_schedule_that_cannot_run_is_refused(rows: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        parse(rows, 2, 2, 2).orders()
    assert str(error.value) == message


def test_a_file_is_part_of_the_plan(tmp_path: Path) -> None:
    """Its passes determine the plan, whatever happens to the file."""
    path = tmp_path / "own.csv"
    path.write_text("# two ranks\n0F0,0F1,0B0,0B1\n\n1F0,1B0,1F1,1B1\n")
    rows = read_passes(str(path))
    plan = read_plan(None, {"sequence": 128, "pipeline": 2, "global_batch": 2, "rank_passes": rows})
    assert (plan.schedule, plan.order, plan.rank_passes) == ("own", "own", ("0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"))
    for other in ({"rank_passes": rows, "schedule": "1f1b"}, {"schedule": "own"}):
        plan = read_plan(None, {"sequence": 128, "pipeline": 2, "global_batch": 2, **other})
        with pytest.raises(InputError, match="rows of rank_passes: name a file with the passes of each rank"):
            check(plan, 2)
