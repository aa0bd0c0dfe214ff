"""Compare placements of a job on the same GPUs: shared or separate pools, their sizes, and how stale samples may be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import msgspec

from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.build import PriceTable, build_job
from presim.post_training.rl_answer import Alternative, RlAnswer, answer
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.post_training.training import EvaluatePlan

_SHARES = (0.25, 0.5, 0.75)  # of the GPUs that generate
_ASYNCHRONY = ((0.0, False), (1.0, False), (1.0, True), (2.0, True), (4.0, True))  # staleness, partial rollouts


def candidates(request: RlRequest, cluster: Cluster) -> Iterator[RlRequest]:
    """The job colocated, and on separate pools of whole nodes (of whole GPUs within one) at each staleness."""
    fixed = dataclasses.replace(request, placement="colocated", rollout_gpus=None, staleness=0.0, partial=False)
    yield fixed
    unit = cluster.gpus_per_node if cluster.nodes > 1 else 1
    sizes = {round(cluster.world_size * share / unit) * unit for share in _SHARES}
    for rollout_gpus in sorted(size for size in sizes if 0 < size < cluster.world_size):
        for staleness, is_partial in _ASYNCHRONY:
            yield dataclasses.replace(
                request, placement="separate", rollout_gpus=rollout_gpus, staleness=staleness, partial=is_partial
            )


def search(
    request: RlRequest,
    cluster: Cluster,
    price_per_gpu_hour: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
    framework: EvaluatePlan | None = None,
) -> tuple[RlAnswer, RlRequest, RlJob]:
    """The answer of the placement with the shortest step, with all placements beside it; its request and its job.

    All draw the same lengths. Training steps of pools of one size are composed once.

    Raises:
        InputError: no placement is possible; the reason is that of the first.
    """
    table: PriceTable = {}
    answers: list[tuple[RlAnswer, RlRequest, RlJob]] = []
    alternatives: list[Alternative] = []
    for candidate in candidates(request, cluster):
        try:
            built = build_job(candidate, cluster, table=table, framework=framework)
        except InputError as error:
            alternatives.append(Alternative(placement=_text(candidate), refusal=str(error)))
            continue
        progress(f"simulating {built.job.placement.text}")
        shown = answer(built, simulate(built.job, built.prices), price_per_gpu_hour)
        answers.append((shown, candidate, built.job))
        alternatives.append(_alternative(shown))
    if not answers:
        raise InputError(alternatives[0].refusal)
    best, request, job = min(answers, key=lambda entry: entry[0].figures.step_time_s)
    return msgspec.structs.replace(best, alternatives=marked_fronts(alternatives)), request, job


def _text(candidate: RlRequest) -> str:
    if candidate.placement == "colocated":
        return "colocated"
    return f"{candidate.rollout_gpus} GPUs generate, staleness {candidate.staleness:g}"


def _alternative(shown: RlAnswer) -> Alternative:
    figures = shown.figures
    return Alternative(
        placement=shown.placement,
        step_time_s=figures.step_time_s,
        tokens_per_s_per_gpu=figures.tokens_per_s_per_gpu,
        largest_staleness=figures.largest_staleness,
        rollout_idle_share=figures.rollout_idle_share,
    )


def marked_fronts(alternatives: list[Alternative]) -> list[Alternative]:
    """The alternatives; marked is each that no other of at most its staleness beats."""
    return [
        msgspec.structs.replace(
            alternative, is_on_front=alternative.step_time_s == _fastest_s(alternatives, alternative.largest_staleness)
        )
        if alternative.step_time_s is not None
        else alternative
        for alternative in alternatives
    ]


def _fastest_s(alternatives: list[Alternative], staleness: int | None) -> float | None:
    """The shortest step of placements that are at most so stale."""
    return min(
        alternative.step_time_s
        for alternative in alternatives
        if alternative.step_time_s is not None and (alternative.largest_staleness or 0) <= (staleness or 0)
    )
