"""A point's plan is priced and simulated as `presim compose` does it, whatever the options of the search."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import open_graph
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.evaluation.options import ClusterOptions, EvaluationOptions, RunOptions
from presim.planner.of_model import request_for_model
from presim.planner.search_options import SearchOptions
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial_messages import Subject
from presim.verbs.compose import compose_and_evaluate

MODEL, CLUSTER = "llama3-8b", {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 2}
POINT: dict[str, Any] = {"tensor": 2, "sequence": 8192, "micro_batch": 4}
OPTIONS: dict[str, Any] = {
    "contention": False,
    "overlap_model": "ratio=1.5",
    "host_factor": 50.0,
    "host_time": False,
    "bandwidth": ("inter=0.1",),
    "stragglers": ("rank3=0.5",),
    "scale_op": ("gemm=3", "all_to_all=3"),  # the plan exchanges nothing all to all, others might
    "estimator": ("roofline",),
}


@pytest.fixture(scope="module")
def graph() -> OperatorGraph:
    return open_graph(MODEL, "bfloat16")


def step_s(graph: OperatorGraph, **options: Any) -> float:
    reply = PlanEvaluator(Subject(graph=msgspec.msgpack.encode(graph), options={**CLUSTER, **options})).evaluate(POINT)
    assert reply.figures is not None, reply.words
    return reply.figures.step_time_s


@pytest.fixture(scope="module")
def usual_step_s(graph: OperatorGraph) -> float:
    return step_s(graph)


def test_every_option_of_evaluation_is_tried_here() -> None:
    cluster = {field.name for field in dataclasses.fields(ClusterOptions)}
    fields = {field.name for field in dataclasses.fields(EvaluationOptions)} - cluster
    assert fields - {"rank", "prices"} == set(OPTIONS)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_acts_as_in_a_composed_job(
    name: str, graph: OperatorGraph, usual_step_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    searched_s = step_s(graph, **{name: OPTIONS[name]})
    only = {**OPTIONS, "scale_op": ("gemm=3",)}[name]  # the work of one job has to be there
    options = EvaluationOptions(**CLUSTER, **{name: only})  # type: ignore[arg-type]
    composed_s = compose_and_evaluate(MODEL, Plan(**POINT), options).result.step_time_s
    assert searched_s == pytest.approx(composed_s, rel=1e-6)
    assert searched_s != usual_step_s or name == "contention"  # nothing overlaps that could be slower for it


def test_prices_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="there is no folder /nowhere with prices"):
        compose_and_evaluate(MODEL, Plan(**POINT), EvaluationOptions(**CLUSTER, prices=("/nowhere",)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale_op": ("gem=2",)}, "--scale-op gem: name one of"),
        ({"bandwidth": ("nan",)}, "--bandwidth takes NAME=FACTOR"),
        ({"estimator": ("guess",)}, "there is no estimator 'guess'"),
        ({"prices": ("/nowhere",)}, "there is no folder /nowhere with prices"),
    ],
)
def test_a_change_that_cannot_be_ends_the_search_before_it_begins(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        request_for_model(MODEL, SearchOptions(), RunOptions(**CLUSTER, **options), {"sequence": 1024})
