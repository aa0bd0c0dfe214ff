"""Plans priced from a framework's captures rank before composed ones; blocks that plans share are captured once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.planner.frameworks import choice
from presim.planner.frameworks.choice import PlanBlocks, PlansToCapture, choose
from presim.planner.frameworks.framework_prices import merged, replies_of
from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import answer
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.study import Answer
from presim.planner.trials.trial import Point, Trial
from presim.planner.trials.trial_messages import Reply, Trainer
from support.searching import InProcess, figures

SPACE = Space({"tensor": (1, 2, 4, 8)}, {"sequence": 64})
POINTS = list(SPACE)


def request(plans: int = 3) -> SearchRequest:
    trainer = Trainer(model="model", framework="megatron")
    objectives = [OBJECTIVES["step_time"]]
    return SearchRequest(subject="model", space=SPACE, objectives=objectives, trainer=trainer, framework_plans=plans)


def composed(step_times_s: Sequence[float], lacking_gib: Sequence[float] = (0, 0, 0, 0)) -> Answer:
    trials = [
        Trial(number=number, point=point, fate="priced", figures=figures(step_s, headroom_gib=1 - 2 * lacks_gib))
        for number, (point, step_s, lacks_gib) in enumerate(zip(POINTS, step_times_s, lacking_gib))
    ]
    return answer(request(), trials)


def priced(step_time_s: float) -> Reply:
    return Reply(fate="priced", figures=figures(step_time_s, source="framework"))


def chosen(plans: Answer, numbers: Sequence[int], refused: dict[int, str] | None = None) -> PlansToCapture:
    blocks = [PlanBlocks(plans.trial(number), (Path(str(number)),), frozenset()) for number in numbers]
    return PlansToCapture(blocks, refused or {})


def test_the_framework_s_order_precedes_the_composed_one() -> None:
    plans = composed([1.0, 1.1, 1.2, 9.0])
    result = merged(request(), plans, chosen(plans, [0, 1, 2]), {0: priced(2.0), 1: priced(1.6), 2: priced(1.8)})
    assert result.best == [1, 2, 0, 3]
    sources = [trial.figures.source for trial in result.trials if trial.figures]
    assert sources == ["framework"] * 3 + ["composed"]
    assert result.from_framework
    assert result.from_framework.regret == pytest.approx(0.25)
    assert [plan.composed_s for plan in result.from_framework.plans] == [1.0, 1.1, 1.2]
    assert result.notes[-3:] == [
        "3 plans of 3 priced from 3 blocks of megatron.",
        "Composed times only say what to capture; plans ranked behind by them: 1.",
        "Choosing by composed times would have lost 25.0% of step time.",
    ]


def test_a_block_that_fails_fails_its_plans_only() -> None:
    plans = composed([1.0, 1.1, 1.2, 9.0])
    replies = {0: Reply(fate="failed", words="it broke"), 1: priced(1.6)}
    result = merged(request(), plans, chosen(plans, [0, 1], {2: "no such plan"}), replies)
    assert result.best == [1, 3]
    assert [(trial.fate, trial.words) for trial in result.trials[:3]] == [
        ("failed", "it broke"),
        ("priced", ""),
        ("failed", "no such plan"),
    ]


def test_plans_that_time_does_not_reach_stay_composed() -> None:
    plans = composed([1.0, 1.1, 1.2, 9.0])
    result = merged(request(), plans, chosen(plans, [0, 1]), {1: priced(1.6)})
    assert result.partial
    assert result.best == [1, 0, 2, 3]


def test_a_framework_that_answers_for_no_plan_is_named_with_its_words() -> None:
    plans = composed([1.0, 1.1, 1.2, 9.0])
    with pytest.raises(InputError, match="--framework megatron answers for none of the best plans, 2 in all; it broke"):
        merged(request(), plans, chosen(plans, [0], {1: "no"}), {0: Reply(fate="failed", words="it broke")})


def test_shared_blocks_are_captured_before_the_plans_that_share_them() -> None:
    shared, other = Path("shared"), Path("other")
    blocks = [(shared,), (shared,), (other, shared)]
    plans = [
        PlanBlocks(Trial(number=number, point=POINTS[number], fate="priced"), paths, frozenset(paths))
        for number, paths in enumerate(blocks)
    ]
    workers = InProcess(lambda point: priced(float(point["tensor"])), backwards=True)
    said: list[str] = []
    assert [number for number, _ in replies_of(plans, workers, said.append)] == [2, 0, 1]
    assert workers.asked[-1] == POINTS[1]
    assert said == ["2 blocks to capture for 3 plans", "2 of 2 blocks captured", "2 of 2 blocks captured"]


def test_the_best_that_fit_and_the_nearest_that_do_not_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks_of(model: str, plan: object, fields: Point, *_: object, **__: object) -> tuple[Path, ...]:
        if fields["tensor"] == 2:
            raise InputError("not with two")
        return (Path(str(fields["tensor"])),)

    monkeypatch.setattr(choice, "blocks_of", blocks_of)
    plans = composed([0.9, 1.1, 1.2, 1.3], [3, 0, 0, 0])
    assert [plan.trial.number for plan in choose(request(4), plans).plans] == [2, 3, 0]
    assert choose(request(4), plans).refused == {1: "not with two"}
    assert [plan.trial.number for plan in choose(request(1), plans).plans] == [2]
