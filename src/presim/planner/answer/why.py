"""Explain a result: knob importance, where the second-best plan loses time, and why plans do not fit."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence

from presim.planner.knobs import short
from presim.planner.objectives import Constraints, Objective, Work
from presim.planner.trials.trial import Figures, Point, Trial, format_value
from presim.units import GIB, three_digits

_PARTS = {
    "compute": "compute_s",
    "exposed communication": "exposed_communication_s",
    "host": "host_bound_s",
    "idle": "idle_s",
}


def importance(
    trials: Sequence[Trial], varied: Mapping[str, Sequence[object]], objective: Objective, work: Work
) -> dict[str, float]:
    """Share of the variance of the objective's logarithm that each knob explains, largest first.

    Each share considers one knob by itself, so shares do not add up to 1 where knobs interact.
    """
    log_losses = [
        (trial.point, math.log(abs(loss)))
        for trial in trials
        if trial.figures is not None and (loss := objective.loss(trial.figures, work)) and math.isfinite(loss)
    ]
    if len(log_losses) < 3:
        return {}
    mean = sum(value for _, value in log_losses) / len(log_losses)
    total = sum((value - mean) ** 2 for _, value in log_losses)
    shares = {}
    for knob in varied:
        groups: dict[str, list[float]] = collections.defaultdict(list)
        for point, value in log_losses:
            groups[format_value(point[knob])].append(value)
        between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups.values())
        shares[knob] = between / total if total else 0.0
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


_OF_THE_JOB = ("step_time", "tokens_per_s", "days")  # objectives that more GPUs improve


def loses_on(best: Figures, other: Figures, objective: str) -> dict[str, float]:
    """Seconds that each part of ``other``'s step takes longer than the best plan's, largest first.

    The other step is scaled to the tokens of the best plan's step; for an objective per GPU, to its tokens per GPU.
    """
    same = best.tokens_per_step / other.tokens_per_step if best.tokens_per_step and other.tokens_per_step else 1.0
    if objective not in _OF_THE_JOB:
        same *= other.gpus / best.gpus
    parts = {name: getattr(other, field) * same - getattr(best, field) for name, field in _PARTS.items()}
    return dict(sorted(parts.items(), key=lambda item: (-item[1], item[0])))


_REMEDIES = "Use more GPUs, recompute, or a smaller micro-batch"


def infeasible_reasons(trials: Sequence[Trial], constraints: Constraints, work: Work) -> str:
    """Why no plan is feasible: reasons by frequency, and the plan that comes nearest to fitting."""
    reasons: collections.Counter[str] = collections.Counter()
    nearest: tuple[int, Point] | None = None
    for trial in trials:
        broken = constraints.broken(trial, work)
        reasons[_reason(trial, broken)] += 1
        if trial.figures is not None and broken.startswith("memory"):
            lacks = constraints.spare_bytes - trial.figures.headroom_bytes
            if nearest is None or lacks < nearest[0]:
                nearest = lacks, trial.point
    counted = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    sentence = f"no plan of {len(trials)} is feasible: {counted}"
    if nearest is not None:
        plan = show(nearest[1], _varying(trials))
        return f"{sentence}; the nearest lacks {three_digits(nearest[0] / GIB)} GiB: {plan}. {_REMEDIES}"
    bounded = [(trial.lacks_bytes, trial) for trial in trials if trial.lacks_bytes is not None]
    if bounded:
        _, least = min(bounded, key=lambda pair: pair[0])
        return f"{sentence}; the nearest, {show(least.point, _varying(trials))}, {least.words}. {_REMEDIES}"
    first = next((trial.words for trial in trials if trial.words), "")
    return f"{sentence}; the first: {first}" if first else sentence


def _varying(trials: Sequence[Trial]) -> list[str]:
    """Knobs that have several values."""
    names = trials[0].point if trials else ()
    return [name for name in names if len({format_value(trial.point[name]) for trial in trials}) > 1]


def _reason(trial: Trial, broken: str) -> str:
    if trial.figures is not None and broken:
        kind = broken.partition(":")[0]
        return "do not fit their GPU" if kind == "memory" else f"break the limit on {kind}"
    if trial.fate == "pruned":
        return "are pruned for memory" if "memory" in trial.rule else "are pruned"
    return {"illegal": "are illegal", "failed": "failed", "open": "were not reached"}.get(trial.fate, trial.fate)


def show(point: Point, knobs: Sequence[str] | None = None) -> str:
    """A point with short names.

    >>> show({"tensor": 2, "reshard": True})
    'tp=2 reshard=true'
    """
    return " ".join(f"{short(name)}={format_value(point[name])}" for name in (knobs or list(point)) if name in point)
