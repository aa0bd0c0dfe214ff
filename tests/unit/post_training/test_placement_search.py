"""A search compares placements of the same GPUs, and its front is of steps, staleness and GPUs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training import placement_search
from presim.post_training.build import Built
from presim.post_training.placement_search import marked_fronts
from presim.post_training.placement_space import candidates
from presim.post_training.rl_answer import Alternative, answer
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.post_training.sampled_engines import sampled
from presim.post_training.shared_parts import SharedParts
from support import rl_jobs


def test_pools_are_whole_nodes_of_a_large_cluster_and_gpus_of_a_node() -> None:
    request = RlRequest(model="qwen3-8b", partial=False)
    for nodes, sizes in ((4, {8, 16, 24}), (1, {2, 4, 6})):
        placements = [
            candidate.request for candidate in candidates(request, choose_cluster(gpu="h100-sxm", nodes=nodes), {})
        ]
        assert placements[0].placement == "colocated"
        assert {placement.rollout_gpus for placement in placements[1:]} == sizes
        assert {placement.staleness for placement in placements[1:]} == {0.0, 1.0, 2.0, 4.0}


def test_the_largest_cache_that_fits_stands_for_smaller_ones() -> None:
    """Smaller shares of memory for the same engines preempt more, and are not simulated; other knobs are kept apart."""
    request = RlRequest(model="qwen3-8b")
    vary = {"placement": ("colocated",), "gpu-memory-utilization": (0.5, 0.7, 0.6), "tp": (1, 2)}
    made = candidates(request, choose_cluster(gpu="h100-sxm", nodes=1), vary)
    options = [placement_search.Option(index, candidate, 1.0) for index, candidate in enumerate(made)]
    kept = [option.candidate.knobs for option in placement_search.with_largest_cache(options)]
    assert [(knobs["gpu_memory_utilization"], knobs["tp"]) for knobs in kept] == [(0.7, 1), (0.7, 2)]


def test_values_of_knobs_are_combined() -> None:
    request = RlRequest(model="qwen3-8b", engine={"kernels": "sglang"})
    vary = {"tp": (1, 2), "rollout-tp": (1, 4), "staleness": (0, "2p"), "offload": ("none", "optimizer+reference")}
    made = list(candidates(request, choose_cluster(gpu="h100-sxm", nodes=2), vary))
    assert len(made) == 2 * 2 * 2 * (1 + 1 * 2)
    last = made[-1].request
    assert (last.tp, last.engine, last.partial) == (2, {"kernels": "sglang", "tp": 4}, True)
    assert last.offload == ("optimizer", "reference")


@pytest.mark.parametrize(
    ("knob", "values", "sentence"),
    [
        ("rolout-tp", (1,), "no knob of placements is called 'rolout-tp'; did you mean rollout-tp?"),
        ("staleness", ("p2",), "staleness=p2 is no number, or one with p for partial rollouts; correct --vary"),
        (
            "placement",
            ("hybird",),
            "placement=hybird is no value of this knob, which takes colocated, hybrid, separate; correct --vary",
        ),
        (
            "tp",
            (1, 0),
            "tp=0 is no value of this knob, which takes a whole number from 1 on; correct --vary",
        ),
        (
            "offload",
            ("optimizer+everything",),
            "offload=optimizer+everything is no value of this knob, which takes none, or parameters, optimizer and "
            "reference joined with +; correct --vary",
        ),
        ("nodes", (3,), "nodes=3 is none of 1 to 2, which the cluster has; correct --vary"),
    ],
)
def test_knobs_that_are_none_are_refused(knob: str, values: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        list(candidates(RlRequest(model="qwen3-8b"), choose_cluster(gpu="h100-sxm", nodes=2), {knob: values}))
    assert str(error.value) == sentence


def test_hybrid_pools_are_compared_if_they_are_named() -> None:
    request, cluster = RlRequest(model="qwen3-8b"), choose_cluster(gpu="h100-sxm", world_size=8)
    vary = {"placement": ("colocated", "hybrid"), "rollout_gpus": (2, 4)}
    shapes = [(made.request.placement, made.request.rollout_gpus) for made in candidates(request, cluster, vary)]
    assert shapes == [("colocated", None), ("hybrid", 2), ("hybrid", 4)]


def test_a_search_finds_what_simulating_every_placement_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, request = choose_cluster(gpu="h100-sxm", world_size=4), RlRequest(model="qwen3-0.6b")
    vary = {"rollout_gpus": (2,), "staleness": (0, 1, "1p", "3p"), "tp": (1, 2, 4)}
    token_s = {1: 1e-4, 2: 3e-5, 4: 4e-4}  # of training: beside it, rollouts take longer, as long, or less

    def build(candidate: RlRequest, *_: Any, **__: Any) -> Built:
        is_colocated = candidate.placement == "colocated"
        job = rl_jobs.job(
            is_colocated=is_colocated, staleness=candidate.staleness, is_partial=candidate.partial, steps=8
        )  # fmt: skip
        plan = dataclasses.replace(job.trainer, logprob_tokens=4096 * candidate.tp)
        return Built(dataclasses.replace(job, trainer=plan), rl_jobs.prices(token_s[candidate.tp]), [], ())

    monkeypatch.setattr(placement_search, "build_job", build)
    found, _, _ = placement_search.search(request, cluster, vary=vary)
    steps_s = []
    for candidate in candidates(request, cluster, vary):
        built = build(candidate.request)
        steps_s.append(answer(built, simulate(built.job, built.prices)).figures.step_time_s)
    assert found.figures.step_time_s == pytest.approx(min(steps_s))
    for alternative, step_s in zip(found.alternatives, steps_s):
        assert alternative.estimate_s is not None
        assert alternative.estimate_s <= step_s * 1.0001
        if alternative.step_time_s is not None:
            is_sampled = "colocated" in alternative.placement and alternative.engines == 2  # of four
            assert alternative.step_time_s == pytest.approx(step_s, rel=0.2 if is_sampled else 1e-6)
    assert any(alternative.step_time_s is None for alternative in found.alternatives)


def test_a_few_engines_show_what_all_do_but_for_the_tail() -> None:
    job = rl_jobs.job(is_colocated=True, prompts=64, samples=8, steps=1)
    built = Built(job, rl_jobs.prices(1e-5), [], ())
    parts = SharedParts()
    few, few_parts = sampled(built, parts)
    assert (few.job.replicas, few.job.batch.prompts) == (2, 32)
    look, whole = (simulate(*arguments) for arguments in ((few.job, few.prices, few_parts), (job, built.prices, parts)))
    assert look.steps[0].end_s == pytest.approx(whole.steps[0].end_s, rel=0.1)
    updates = [sum(span.seconds for span in run.spans if span.phase == "update") for run in (look, whole)]
    assert updates[0] == pytest.approx(updates[1])


def test_the_front_has_no_placement_that_a_fresher_one_beats() -> None:
    steps = [("a", 20.0, 0, 8), ("b", 30.0, 0, 8), ("c", 18.0, 1, 8), ("d", 19.0, 2, 8), ("e", 12.0, 4, 8)]
    steps += [("f", 40.0, 0, 4), ("g", 20.0, 0, 16)]
    alternatives = [
        Alternative(placement=name, step_time_s=step_s, largest_staleness=staleness, gpus=gpus)
        for name, step_s, staleness, gpus in steps
    ]
    refused = Alternative(placement="h", refusal="does not fit")
    marked = marked_fronts([*alternatives, refused])
    assert [alternative.placement for alternative in marked if alternative.is_on_front] == ["a", "c", "e", "f", "g"]
