"""What is written of the best point is what was evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.composition.plan import read_plan
from presim.errors import InputError
from presim.planner.answer.point_files import write
from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import answer
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.trials.point_evaluator import plan
from presim.planner.trials.trial import Trial
from support.searching import figures


def request(space: Space, *command: str) -> SearchRequest:
    return SearchRequest(
        subject="llama 70b",
        space=space,
        objectives=[OBJECTIVES["step_time"]],
        options={"gpu": "h100-sxm", "nodes": 2},
        command=command,
    )


def test_a_plan_reads_back_and_its_command_names_the_cluster(tmp_path: Path) -> None:
    asked = request(Space({"tensor": (2, 4), "reshard": (False,), "recompute": ("full",)}, {"sequence": 4096}))
    trials = [
        Trial(number=number, point=point, fate="priced", figures=figures(2 - number))
        for number, point in enumerate(asked.space)
    ]
    plan_file, command = write(asked, answer(asked, trials), str(tmp_path / "new"))
    assert read_plan(str(plan_file), {}) == plan(trials[1].point)
    text = command.read_text()
    assert text == f"#!/bin/sh\npresim compose 'llama 70b' --gpu h100-sxm --nodes 2 --plan {plan_file}\n"


def test_a_command_has_its_values(tmp_path: Path) -> None:
    asked = request(Space({"tp": (2,)}, {}), "torchrun", "train it.py", "--tp={tp}")
    found = answer(asked, [Trial(number=0, point={"tp": 2}, fate="priced", figures=figures())])
    assert write(asked, found, str(tmp_path))[0].read_text() == "#!/bin/sh\ntorchrun 'train it.py' --tp=2\n"


def test_without_a_feasible_point_there_is_nothing_to_write(tmp_path: Path) -> None:
    asked = request(Space({"tp": (2,)}, {}), "train.py", "{tp}")
    found = answer(asked, [Trial(number=0, point={"tp": 2}, fate="failed", words="it broke")])
    with pytest.raises(InputError, match="no point is feasible, so there is nothing to --write"):
        write(asked, found, str(tmp_path))
