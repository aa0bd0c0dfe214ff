"""Predict a job of reinforcement learning: rollouts and training in one simulation (`presim rl`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from presim.evaluation.options import ClusterOptions
from presim.verbs.target import chosen_cluster

if TYPE_CHECKING:
    from presim.post_training.answer import RlAnswer
    from presim.post_training.request import RlRequest


def predict_rl(
    request: RlRequest,
    options: ClusterOptions,
    *,
    price_per_gpu_hour: float | None = None,
    notes: Sequence[str] = (),
    searches: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> RlAnswer:
    """Predict the steps of a job, or with ``searches`` those of its fastest placement.

    ``notes``: sentences to include in the answer.

    Raises:
        InputError: the request cannot be, or a role does not fit its GPUs.
    """
    from presim.post_training.answer import answer
    from presim.post_training.build import build_job
    from presim.post_training.loop import simulate
    from presim.post_training.search import search

    if searches:
        best = search(request, chosen_cluster(options), price_per_gpu_hour, progress)
        return msgspec.structs.replace(best, notes=[*notes, *best.notes])
    built = build_job(request, chosen_cluster(options), progress)
    progress("simulating rollouts")
    run = simulate(built.job, built.prices)
    return answer(dataclasses.replace(built, notes=(*notes, *built.notes)), run, price_per_gpu_hour)
