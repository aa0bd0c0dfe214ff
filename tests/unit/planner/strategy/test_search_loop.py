"""The search gives every point a fate, and the same whichever process is faster."""

from __future__ import annotations

from presim.planner.objectives import OBJECTIVES
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.strategy.no_pruning import NoPruning
from presim.planner.strategy.search_loop import EvaluationRounds, NoStore, evaluate_all_points
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial import Point, Trial
from presim.planner.trials.trial_messages import Reply, Subject
from presim.planner.trials.worker_pool import Workers
from support.searching import InProcess, figures


def reply(point: Point) -> Reply:
    if point["tensor"] == 4:
        return Reply(fate="failed", words="it broke")
    return Reply(fate="priced", figures=figures(1 / int(point["tensor"]) + int(point["micro_batch"])))


def request(**more: object) -> SearchRequest:
    return SearchRequest(  # type: ignore[arg-type]
        **{
            "subject": "model",
            "space": Space({"tensor": (1, 2, 3, 4), "micro_batch": tuple(range(1, 30))}, {"sequence": 64}),
            "objectives": [OBJECTIVES["step_time"]],
            "options": {"gpu": "h100-sxm", "nodes": 1},
            **more,
        }
    )


def ledger(workers: InProcess, **more: object) -> list[Trial]:
    asked = request(**more)
    return evaluate_all_points(asked, EvaluationRounds(asked, workers, NoStore(), lambda text: None), NoPruning())  # type: ignore[arg-type]


def test_every_plan_has_one_fate_and_a_value_without_a_plan_its_equation() -> None:
    workers = InProcess(reply)
    trials = ledger(workers)
    assert [trial.number for trial in trials] == [*range(2 * 29), 2 * 29, *range(3 * 29, 4 * 29)]
    illegal = [trial for trial in trials if trial.fate == "illegal"]
    assert [trial.point["tensor"] for trial in illegal] == [3]
    assert illegal[0].words.startswith("tensor = 3 does not divide 8 GPUs (8 % 3 = 2)")
    assert [trial.words for trial in trials if trial.fate == "failed"] == ["it broke"] * 29
    assert len(workers.asked) == 3 * 29


def test_the_ledger_does_not_depend_on_the_order_of_replies() -> None:
    assert ledger(InProcess(reply)) == ledger(InProcess(reply, backwards=True))


def test_a_budget_that_is_spent_leaves_the_rest_open() -> None:
    workers = InProcess(reply)
    trials = ledger(workers, budget_s=0.0)
    assert {trial.fate for trial in trials} == {"illegal", "open"}
    assert not workers.asked


def test_a_worker_answers_with_the_words_of_what_fails_and_another_takes_its_place() -> None:
    """Processes of their own: one without a model to compose fails in words, point after point."""
    with Workers(Subject(options={"gpu": "h100-sxm"}), 2) as workers:
        replies = dict(workers.evaluate([{"sequence": 64, "tensor": degree} for degree in (1, 2, 3)]))
    assert sorted(replies) == [0, 1, 2]
    assert all(reply.fate == "failed" and reply.words for reply in replies.values())


def test_a_value_that_a_plan_cannot_have_is_illegal_in_words() -> None:
    reply = PlanEvaluator(Subject(options={"gpu": "h100-sxm"})).evaluate({"sequence": 64, "recompute": "half"})
    assert reply.fate in ("illegal", "failed")
    assert reply.words
