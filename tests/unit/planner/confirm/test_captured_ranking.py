"""Captures rank the best composed plans anew, and say what composing alone would have lost."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from presim.errors import InputError
from presim.planner.confirm.capture import capture, check_command
from presim.planner.confirm.captured_ranking import confirm
from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import answer
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.study import Answer
from presim.planner.trials.storage import open_study
from presim.planner.trials.trial import Trial
from presim.planner.trials.trial_messages import Reply
from support.searching import figures

SPACE = Space({"tensor": (1, 2, 4, 8)}, {"sequence": 64})


def confirmed(composed: list[float], captured: dict[int, Reply], objective: str = "step_time", most: int = 3) -> Answer:
    """With step times by number."""
    request = SearchRequest(subject="model", space=SPACE, objectives=[OBJECTIVES[objective]], confirm=most)
    trials = [
        Trial(number=number, point=point, fate="priced", figures=figures(composed[number]))
        for number, point in enumerate(SPACE)
    ]

    def take(request: SearchRequest, trial: Trial, folder: Path) -> tuple[str, Reply]:
        return "torchtitan", captured[trial.number]

    return confirm(request, answer(request, trials), run_capture=take)


def priced(step_time_s: float) -> Reply:
    return Reply(fate="priced", figures=figures(step_time_s))


def test_plans_are_ranked_by_captures_and_the_rest_follows() -> None:
    found = confirmed([1.0, 1.1, 1.2, 9.0], {0: priced(2.0), 1: priced(1.6), 2: priced(1.8)})
    assert found.best == [1, 2, 0, 3]
    assert found.confirmation
    assert found.confirmation.regret == pytest.approx(0.25)
    assert found.notes == [
        "Captures change the order: 1 to 3, 2 to 1, 3 to 2.",
        "Composing alone would have lost 25.0% of step time.",
    ]


def test_captures_are_kept_in_the_study_and_failed_ones_are_tried_again(tmp_path: Path) -> None:
    request = SearchRequest(
        subject="model",
        space=SPACE,
        objectives=[OBJECTIVES["step_time"]],
        graph=b"graph",
        study=str(tmp_path / "study"),
    )
    request = dataclasses.replace(request, confirm=3)
    trials = [Trial(number=n, point=point, fate="priced", figures=figures(1.0 + n)) for n, point in enumerate(SPACE)]
    taken: list[int] = []

    def take(request: SearchRequest, trial: Trial, folder: Path) -> tuple[str, Reply]:
        taken.append(trial.number)
        return "torchtitan", Reply(fate="failed", words="it broke") if trial.number == 1 else priced(3.0 - trial.number)

    def again(command: tuple[str, ...] = ()) -> Answer:
        asked = dataclasses.replace(request, confirm_command=command)
        with open_study(request) as kept:
            return confirm(asked, answer(request, trials), run_capture=take, store=kept)

    assert again() == again()
    assert taken == [0, 1, 2, 1]
    again(("train.py",))
    assert taken == [0, 1, 2, 1, 0, 1, 2]


def test_of_an_objective_that_is_to_be_large_the_loss_is_a_share_too() -> None:
    found = confirmed([1.0, 1.1, 1.2, 9.0], {0: priced(2.0), 1: priced(1.6)}, "tokens_per_s_per_gpu", most=2)
    assert found.confirmation
    assert found.confirmation.regret == pytest.approx(0.25)


def test_the_order_may_stay() -> None:
    found = confirmed([1.0, 1.1, 1.2, 9.0], {0: priced(1.0), 1: priced(1.6)}, most=2)
    assert found.notes == [
        "The 2 best plans keep their order when captured.",
        "Composing alone would have lost 0.0% of step time.",
    ]


def test_what_cannot_be_captured_is_last_with_its_reason() -> None:
    failed = Reply(fate="failed", words="the script raised")
    found = confirmed([1.0, 1.1, 1.2, 9.0], {0: failed, 1: priced(1.6), 2: priced(1.5)})
    assert found.best == [2, 1, 3, 0]
    assert found.confirmation
    assert found.confirmation.regret is None
    assert "1 could not be captured and are ranked last; the first: the script raised" in found.notes


def test_a_placeholder_must_be_a_knob() -> None:
    check_command(["train.py", "{tp}", "{sequence}"], {"tensor": 2, "sequence": 64})
    with pytest.raises(
        InputError, match=r"the command has \{pp\}, which is not a knob of the plans; use one of seq, sequence, t"
    ):
        check_command(["train.py", "{pp}"], {"tensor": 2, "sequence": 64})


def test_points_of_a_command_that_were_captured_are_not_captured_again(tmp_path: Path) -> None:
    request = SearchRequest(
        subject="train.py",
        space=Space({"accum": (8, 16, 32)}, {}),
        objectives=[OBJECTIVES["step_time"]],
        command=["train.py", "{accum}"],
        confirm_command=["train.py", "{accum}"],
        confirm=1,
    )
    captured = msgspec.structs.replace(figures(1.0), source="captured")
    trial = Trial(number=0, point={"accum": 8}, fate="priced", figures=captured)
    assert capture(request, trial, tmp_path) == ("command", Reply(fate="priced", figures=captured))
    extended = msgspec.structs.replace(figures(2.0), source="extended")
    trials = [trial, Trial(number=1, point={"accum": 32}, fate="priced", figures=extended)]
    found = confirm(request, answer(request, trials))
    assert found.uncaptured_name == "extended"
    assert "Extending alone would have lost 0.0% of step time." in found.notes
