"""Pruning loses nothing: on whole spaces the optimum is that of an exhaustive search."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from presim.composition.graph.take import open_graph
from presim.planner.objectives import OBJECTIVES, Constraints, Work
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.strategy.legal import illegal_reason
from presim.planner.strategy.no_pruning import NoPruning
from presim.planner.strategy.plan_bounds import Bounds
from presim.planner.strategy.prune import LOSSLESS, RulePruner
from presim.planner.strategy.search_loop import EvaluationRounds, NoStore, evaluate_all_points
from presim.planner.study import ranked
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial import Point, Trial, key
from presim.planner.trials.trial_messages import Reply, Subject
from support.long_cases import marked
from support.searching import InProcess

pytestmark = [pytest.mark.torch_cuda]
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
FREE = {"tensor": (1, 8), "micro_batch": (1, 2, 16), "recompute": ("none", "full"), "reshard": (True, False)}
SPACES = {
    "memory is tight": Space(FREE, {"sequence": 8192, "gpu": "a100-40gb-sxm", "nodes": 1}),
    "everything fits": Space(
        {"tensor": (1, 2), "context": (1, 2), "micro_batch": (1, 2, 8), "recompute": ("none", "full")}
        | {"sequence_parallel": (False, True)},
        {"sequence": 2048, "gpu": "h100-sxm", "nodes": 2},
    ),
    "pipelines": Space(
        {"tensor": (1, 4), "pipeline": (1, 2), "virtual": (1, 2), "micro_batch": (1, 2)}
        | {"recompute": ("none", "full"), "data_style": ("fsdp2", "zero1")},
        {"sequence": 2048, "global_batch": 16, "gpu": "h100-sxm", "nodes": 1},
    ),
    "offloading and passes": Space(
        {"passes": ("none", "int8", "sparse24", "fuse-norm+fp8-row"), "offload_activations": (0, 2)}
        | {"offload_optimizer": ("none", "cpu"), "recompute": ("none", "full"), "micro_batch": (1, 4)},
        {"sequence": 4096, "gpu": "h100-sxm", "world_size": 1},
    ),
    "clusters vary": Space(
        {"gpu": ("h100-sxm", "a100-80gb-sxm"), "nodes": (1, 4), "micro_batch": (1, 4), "recompute": ("none", "full")},
        {"sequence": 4096, "tensor": 2},
    ),
}


@functools.cache
def graph() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(LLAMA))
        return msgspec.msgpack.encode(open_graph(folder))


@functools.cache
def evaluator(*prune: str) -> PlanEvaluator:
    return PlanEvaluator(Subject(graph=graph(), prune=list(prune)))


@functools.cache
def reply(text: str) -> Reply:
    """Of every micro-batch: nothing is pruned on the way."""
    return evaluator().evaluate(json.loads(text))


class Finished(NoStore):
    """A study with the trials of an earlier search."""

    def __init__(self, trials: list[Trial]) -> None:
        self._trials = {key(trial.point): trial for trial in trials if trial.figures is not None}

    def find(self, point: Point) -> Trial | None:
        return self._trials.get(key(point))


def search(space: Space, objective: str, *, prune: bool, store: NoStore | None = None) -> list[Trial]:
    request = SearchRequest(subject="llama", space=space, objectives=[OBJECTIVES[objective]])
    workers = InProcess(lambda point: reply(json.dumps(point, sort_keys=True)))
    evaluation = EvaluationRounds(request, workers, store or NoStore(), lambda text: None)  # type: ignore[arg-type]
    bounds = Bounds(evaluator())
    rules = RulePruner(tuple(LOSSLESS), bounds, request.objectives, Work(), Constraints(), space.varied)
    return evaluate_all_points(request, evaluation, rules if prune else NoPruning())


@pytest.mark.parametrize("objective", ["tokens_per_s_per_gpu", "step_time"])
@pytest.mark.parametrize("name", marked(SPACES, ["pipelines", "offloading and passes"]))
def test_pruned_and_exhaustive_search_give_the_same_optimum(name: str, objective: str) -> None:
    whole, pruned = search(SPACES[name], objective, prune=False), search(SPACES[name], objective, prune=True)
    assert [trial.point for trial in whole] == [trial.point for trial in pruned]
    best = [ranked(found, OBJECTIVES[objective], Work(), Constraints())[0] for found in (whole, pruned)]
    assert best[0].point == best[1].point
    assert all(trial.rule and trial.words for trial in pruned if trial.fate == "pruned")
    assert any(trial.fate == "pruned" for trial in pruned)
    assert search(SPACES[name], objective, prune=True, store=Finished(pruned)) == pruned, (
        "a study gives the same ledger"
    )


@pytest.mark.parametrize("name", SPACES)
def test_no_plan_takes_less_time_or_memory_than_its_bound(name: str) -> None:
    bounds = Bounds(evaluator())
    for point in SPACES[name]:
        found = reply(json.dumps(point, sort_keys=True)).figures
        if found is None:  # it cannot be
            continue
        bound = bounds.of(point)
        assert bound.step_s <= found.step_time_s, point
        assert bound.memory_bytes <= found.memory_bytes, point
        assert bound.tokens_per_step == pytest.approx(found.tokens_per_step), point


ANY: dict[str, tuple[object, ...]] = {
    "tensor": (1, 2, 4),
    "pipeline": (1, 2, 4),
    "virtual": (1, 2),
    "schedule": ("", "gpipe", "zero-bubble", "dualpipe", "dualpipev"),
    "sequence_parallel": (False, True),
    "context": (1, 2),
    "context_style": ("all-gather", "ulysses", "ring"),
    "micro_batch": (1, 2),
    "global_batch": (32, 64),
    "recompute": ("none", "full"),
    "reshard": (True, False),
    "data_style": ("fsdp2", "hsdp", "ddp", "zero1"),
    "shard": (0, 2, 8),
    "clip": (True, False),
    "optimizer": ("adamw", "sgd"),
    "keep_last": (False, True),
    "separate_ends": (False, True),
    "nodes": (1, 2),
}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(some.fixed_dictionaries({name: some.sampled_from(values) for name, values in ANY.items()}))
def test_no_random_plan_takes_less_time_or_memory_than_its_bound(point: dict[str, Any]) -> None:
    point |= {"sequence": 1024, "gpu": "h100-sxm"}
    point |= {"shard": 0} if point["data_style"] != "hsdp" else {}
    assume(not illegal_reason(point, evaluator().cluster(point), 4))
    found = reply(json.dumps(point, sort_keys=True)).figures
    assume(found is not None)
    assert found is not None
    bound = shared_bounds().of(point)
    assert bound.step_s <= found.step_time_s
    assert bound.memory_bytes <= found.memory_bytes


@functools.cache
def shared_bounds() -> Bounds:
    return Bounds(evaluator())


@pytest.mark.parametrize(
    ("point", "knobs"),
    [
        ({"tensor": 1}, {"sequence_parallel": True}),
        ({"pipeline": 2, "global_batch": 16}, {"reshard": False}),
        ({"tensor": 2}, {"data_style": "hsdp", "shard": 4}),
    ],
)
def test_plans_that_count_as_one_have_equal_figures(point: dict[str, Any], knobs: dict[str, Any]) -> None:
    point = {"sequence": 1024, "gpu": "h100-sxm", "nodes": 1, **point}
    first, other = evaluator().evaluate(point).figures, evaluator().evaluate({**point, **knobs}).figures
    assert first == other


def test_a_pipeline_whose_first_stage_does_not_fit_does_not_fit_as_a_whole() -> None:
    """The rule needs no more than one stage of four, and prunes no plan that fits."""
    judging, fates = evaluator("first_stage"), {}
    for size in (1, 16):
        point = {"pipeline": 4, "tensor": 2, "micro_batch": size, "global_batch": 8 * size, "sequence": 8192}
        point |= {"gpu": "a100-40gb-sxm", "nodes": 1}
        found, whole = judging.evaluate(point), evaluator().evaluate(point)
        assert whole.fate == "priced"
        assert whole.figures is not None
        fates[size] = found.fate
        assert (found.fate == "pruned") == (whole.figures.fits is False)
    assert fates == {1: "priced", 16: "pruned"}


MIXED = """gpu = "h100-sxm"
nodes = 3
[[groups]]
name = "old"
first_node = 1
nodes = 2
gpu = "a100-40gb-sxm"
"""
ON_GROUPS = Space(
    {"tensor": (1, 8), "pipeline": (1, 3), "micro_batch": (1, 4), "recompute": ("none", "full")},
    {"sequence": 4096, "global_batch": 96, "data_style": "zero1"},
)


@pytest.mark.long
def test_on_groups_of_nodes_bounds_hold_and_pruning_keeps_the_optimum(tmp_path: Path) -> None:
    """Eight H100 and 16 A100 of 40 GB: the bound of a kind of node alone would be too high or too low."""
    (tmp_path / "mixed.toml").write_text(MIXED)
    options = {"cluster": str(tmp_path / "mixed.toml")}
    judge = PlanEvaluator(Subject(graph=graph(), options=options))
    bounds, objective = Bounds(judge), OBJECTIVES["step_time"]
    request = SearchRequest(subject="llama", space=ON_GROUPS, objectives=[objective], options=options)
    found = {}
    for name in ("none", "lossless"):
        rules = RulePruner(tuple(LOSSLESS), bounds, request.objectives, Work(), Constraints(), ON_GROUPS.varied)
        evaluation = EvaluationRounds(request, InProcess(judge.evaluate), NoStore(), lambda text: None)  # type: ignore[arg-type]
        found[name] = evaluate_all_points(request, evaluation, NoPruning() if name == "none" else rules)
    for trial in found["none"]:
        if trial.figures is not None:
            bound = bounds.of(trial.point)
            assert bound.step_s <= trial.figures.step_time_s
            assert bound.memory_bytes <= trial.figures.memory_bytes
            assert trial.figures.gpus_by_kind == {"h100-sxm": 8, "a100-40gb-sxm": 16}
    best = [ranked(trials, objective, Work(), Constraints())[0] for trials in found.values()]
    assert best[0].point == best[1].point
    assert any(trial.fate == "priced" for trial in found["none"])
    assert any(trial.rule == "time_bound" for trial in found["lossless"])
