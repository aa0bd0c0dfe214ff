"""A training step that was captured (`presim run --save`), in place of a composed one."""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.composition.like import plan_of
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.post_training.training import TrainingPrices, forward_seconds
from presim.result import Memory


@dataclasses.dataclass(frozen=True)
class CapturedStep:
    """The last step of a saved capture, priced."""

    name: str  # of its folder
    ranks: int
    sequence: int  # tokens of each sequence on a rank
    sequences: int  # of a micro-batch
    micro_batches: int  # of a rank's step
    step_s: float
    forward_s: float  # of a micro-batch
    watts: float | None
    memory: Memory
    not_modelled: tuple[str, ...]


def captured_step(name: str, evaluation: Evaluation) -> CapturedStep:
    """The step of an evaluated capture, by the rank whose forward passes take longest.

    Raises:
        InputError: the trace does not show how many samples and tokens a step has, or has no step.
    """
    result = evaluation.result
    trace = evaluation.ranks[min(evaluation.ranks)].trace
    fields = plan_of(trace, {})
    samples = trace.manifest.batch["samples"]
    sequences = int(fields.get("micro_batch", samples))
    if not result.step_time_s:
        raise InputError(f"{name} has no complete step of training; capture two steps or more")
    forwards = [
        forward_seconds(evaluation.ranks[rank].trace, timeline) for rank, timeline in evaluation.timelines.items()
    ]
    return CapturedStep(
        name, trace.manifest.world_size, int(fields["sequence"]), sequences, max(samples // sequences, 1),
        float(result.step_time_s), max(forwards), result.energy.watts if result.energy else None, result.memory,
        tuple(result.not_modelled),
    )  # fmt: skip


def as_captured(composed: TrainingPrices, step: CapturedStep, ranks: int) -> TrainingPrices:
    """Composed prices, scaled so that micro-batches of the captured size take as long as captured; with its memory.

    Raises:
        InputError: the capture has another number of ranks than the training pool, or its step is shorter than what
            a composed step takes beside its micro-batches.
    """
    if step.ranks != ranks:
        raise InputError(
            f"{step.name} is a step of {step.ranks:,} ranks, and {ranks:,} GPUs train; capture it with as many, or "
            "change the pools"
        )
    context = composed.plan.context  # a rank shows its part of each sequence
    tokens = np.array([float(step.sequence * step.sequences * context)])
    squares = np.array([float(step.sequences * (step.sequence * context) ** 2)])
    update_s = (step.step_s - composed.rest_s) / step.micro_batches
    if update_s <= 0:
        raise InputError(
            f"the step of {step.name} takes {step.step_s:.3g} s, less than the {composed.rest_s:.3g} s of a composed "
            "optimizer and its collectives; check that it is a step of this model by this plan"
        )
    forward = step.forward_s / float(composed.forward.seconds(tokens, squares)[0])
    return dataclasses.replace(
        composed,
        update=composed.update.scaled(update_s / float(composed.update.seconds(tokens, squares)[0])),
        forward=composed.forward.scaled(forward),
        forward_fill_s=composed.forward_fill_s.scaled(forward),
        watts=step.watts if step.watts is not None else composed.watts,
        memory=step.memory,
        not_modelled=step.not_modelled,
    )
