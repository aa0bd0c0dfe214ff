"""Explains a saved job: limits, critical path, and candidates ranked by gain."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence

import msgspec

from presim.analysis.time.critical_path import critical_path
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import EvaluationOptions
from presim.hardware.cluster import Cluster
from presim.result import Result
from presim.result.explanation import SCHEMA_VERSION, CapturedCandidates, Explanation, Gain
from presim.studies.explain.candidates import Candidate, neighbour_plans, simulation_candidates
from presim.system.interrupts import caught

Simulate = Callable[[EvaluationOptions], Result]
Compose = Callable[[Plan], Result]
Progress = Callable[[str], None]
Confirms = Callable[[Sequence[tuple[Gain, Plan]]], CapturedCandidates]


@dataclasses.dataclass(frozen=True)
class ComposedPlan:
    """The plan of a model, and a function that composes other plans."""

    plan: Plan
    compose: Compose


def explain(
    job: str | os.PathLike[str],
    evaluation: Evaluation,
    cluster: Cluster,
    options: EvaluationOptions,
    simulate: Simulate,
    planned: ComposedPlan | None = None,
    confirmed: Confirms | None = None,
    progress: Progress = lambda text: None,
    *,
    keeps_finished: bool = False,
) -> Explanation:
    """Explain what limits a job and which changes would help.

    Args:
        job: folder of the saved job.
        evaluation: its evaluation.
        cluster: the cluster of the evaluation.
        options: options of the evaluation.
        simulate: simulates the job with other options.
        planned: the job's plan; None: no other plans are composed.
        confirmed: captures some of the composed plans; None: none are captured.
        progress: receives one line for each candidate.
        keeps_finished: an interrupt gives the candidates that are simulated by then, marked as partial.

    Raises:
        InputError: the job has no step time.
    """
    result = evaluation.result
    if result.step_time_s is None:
        raise InputError(
            f"{os.fspath(job)} has no step time to explain, because it ended with {result.exit}; capture it again"
        )
    path = critical_path(
        [priced.trace for priced in evaluation.ranks.values()],
        evaluation.timelines,
        evaluation.representatives,
        launch_latency_ns=evaluation.device.launch_latency_ns,
    )
    gains, refused, plans = list[Gain](), list[str](), _OtherPlans()
    confirmation = None
    with caught(keeps_finished) as stop:
        for candidate in simulation_candidates(result, cluster, options):
            progress(f"simulating {candidate.description}")
            _add_gain(gains, refused, result, candidate, simulate)
        if planned is not None:
            _compose_plans(planned, cluster, progress, plans)
        confirmation = confirmed(plans.best_first()) if confirmed else None
    return Explanation(
        schema_version=SCHEMA_VERSION,
        job=os.fspath(job),
        script=result.job.script,
        cluster=result.job.cluster,
        step_time_s=result.step_time_s,
        limits=result.limits,
        critical_path=path,
        gains=_best_first(gains),
        composed_step_time_s=plans.current_step_time_s,
        plans=[plan_gain for plan_gain, _ in plans.best_first()],
        refused=[*refused, *plans.refused],
        confirmed=confirmation,
        partial=stop.is_partial or (confirmation is not None and confirmation.partial),
    )


def _add_gain(gains: list[Gain], refused: list[str], result: Result, candidate: Candidate, simulate: Simulate) -> None:
    """Append what a change of the simulation brings over the job's result, or why it is not possible."""
    try:
        after = simulate(candidate.changed)
    except InputError as error:
        refused.append(f"{candidate.description}: {error}")
    else:
        gains.append(gain(result, after, candidate.description, candidate.remedy, candidate.kind, candidate.options))


@dataclasses.dataclass
class _OtherPlans:
    """Plans that differ in one field from the current one, as far as they are composed."""

    current_step_time_s: float | None = None  # of the composed current plan
    gains: list[tuple[Gain, Plan]] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)

    def best_first(self) -> list[tuple[Gain, Plan]]:
        """The plans by their gain."""
        return sorted(self.gains, key=lambda pair: _order(pair[0]))


def _compose_plans(planned: ComposedPlan, cluster: Cluster, progress: Progress, plans: _OtherPlans) -> None:
    """Compose the neighbours of the current plan, and add each when it is done."""
    before = planned.compose(planned.plan)
    plans.current_step_time_s = before.step_time_s
    for neighbour in neighbour_plans(planned.plan, cluster):
        progress(f"composing {neighbour.description}")
        try:
            after = planned.compose(neighbour.plan)
        except InputError as error:
            plans.refused.append(f"{neighbour.description}: {error}")
            continue
        if after.step_time_s is None or before.step_time_s is None:
            plans.refused.append(f"{neighbour.description}: {after.memory.verdict or after.error}")
            continue
        fields = _changed(planned.plan, neighbour.plan)
        plans.gains.append(
            (gain(before, after, neighbour.description, "another plan", "change", fields), neighbour.plan)
        )


def gain(before: Result, after: Result, description: str, remedy: str, kind: str, options: str) -> Gain:
    """Compare the results before and after a change."""
    old, new = before.step_time_s or 0.0, after.step_time_s or 0.0
    gain_range_s = sorted(
        (old - new) * (end or old) / old if old else 0.0 for end in (before.step_time_low_s, before.step_time_high_s)
    )
    rates = before.throughput.tokens_per_s, after.throughput.tokens_per_s
    return Gain(
        change=description,
        remedy=remedy,
        kind=kind,
        options=options,
        step_time_s=new,
        gain_s=old - new,
        gain_low_s=gain_range_s[0],
        gain_high_s=gain_range_s[1],
        throughput_ratio=rates[1] / rates[0] if rates[0] and rates[1] else None,
        memory_change_bytes=after.memory.peak_reserved_bytes - before.memory.peak_reserved_bytes,
        fits=after.memory.fits,
    )


def _best_first(gains: list[Gain]) -> list[Gain]:
    """Sort by gain; candidates that do not fit come last."""
    return sorted(gains, key=_order)


def _order(item: Gain) -> tuple[bool, float]:
    ratio = item.throughput_ratio
    previous_step_time_s = item.step_time_s + item.gain_s
    return item.fits is False, -(ratio if ratio is not None else previous_step_time_s / max(item.step_time_s, 1e-12))


def _changed(before: Plan, after: Plan) -> str:
    names = [field.name for field in msgspec.structs.fields(Plan)]
    return ", ".join(
        f"{name} = {getattr(after, name)}" for name in names if getattr(after, name) != getattr(before, name)
    )
