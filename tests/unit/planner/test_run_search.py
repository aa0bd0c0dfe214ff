"""What the answer of a search says of the layers that its plans are composed from."""

from __future__ import annotations

from typing import Any

import pytest

from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import layers_note
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.trials.trial import Trial


def noted(points: list[dict[str, Any]], **request: Any) -> str:
    trials = [Trial(number=number, point=point, fate="priced") for number, point in enumerate(points)]
    space = Space({"tensor": (1, 2)}, {"sequence": 2048})
    options: dict[str, Any] = {"graph": b"of a model", **request}
    request_of_model = SearchRequest(subject="model", space=space, objectives=[OBJECTIVES["step_time"]], **options)
    return " ".join(layers_note(request_of_model, trials))


@pytest.mark.parametrize(
    ("point", "is_megatron"),
    [
        ({"tensor": 2}, False),
        ({"tensor": 2, "pipeline": 2}, True),
        ({"tensor": 1, "data_style": "zero1"}, True),
        ({"tensor": 1, "data_style": "fsdp2", "passes": "fuse-norm+fp8-row"}, False),
    ],
)
def test_plans_that_megatron_trains_are_counted(point: dict[str, Any], is_megatron: bool) -> None:
    sentences = noted([point, {"tensor": 1}])
    assert "eager layers" in sentences
    assert ("1 of the first 2 need Megatron" in sentences) == is_megatron


def test_nothing_is_said_of_captured_commands_and_without_a_plan() -> None:
    assert noted([{"tensor": 2}], graph=b"") == ""
    assert noted([]) == ""
