"""Project a step to a whole training run: days, goodput, energy and cost, with all assumptions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from presim.errors import InputError
from presim.hardware import Gpu
from presim.result import Result
from presim.result.training import SCHEMA_VERSION, Projection, Spread
from presim.studies.projection.assumptions import Facts, node_watts
from presim.studies.projection.closed_form import daly_interval, expected_s, young_interval
from presim.studies.projection.simulation import MAX_FAILURES, NeverEndsError, Spent, TrainingRun, train
from presim.studies.projection.token_budget import ProjectionRequest, check
from presim.system import budgets
from presim.system.interrupts import caught

_HOUR, _DAY = 3600.0, 86400.0
_RUN_SIMULATED_S, _FAILURE_SIMULATED_S = 2e-5, 8e-6  # measured with 31,000 failures on a core of an Intel Xeon
_ENDLESS_FACTOR = 100.0  # multiple of the work at which a run counts as endless


def project(
    result: Result,
    request: ProjectionRequest,
    gpu: Gpu,
    *,
    budget: budgets.Budget | None = None,
    keeps_finished: bool = False,
) -> Projection:
    """Project a training run with a token budget on the cluster of a result.

    ``budget``: what the simulation may take; None is the default. ``keeps_finished``: an interrupt gives the figures of
    the trainings that are simulated by then, marked as partial.

    Raises:
        InputError: the result has no step or no tokens, or the training would not end.
    """
    step_s, tokens_per_s = _steady(result)
    check(request)
    facts = Facts(result, request)
    job = facts.job(step_s * facts.jitter, request.tokens / (tokens_per_s * step_s))
    _check_work(job, request.runs, budget)
    runs: list[Spent] = []
    with caught(keeps_finished) as stop:
        runs.extend(_train(job, request.seed * 1_000_003 + number) for number in range(request.runs))
    stop.unless(runs)
    mean = {name: sum(_parts(run)[name] for run in runs) / len(runs) / _DAY for name in _parts(runs[0])}
    total_days = [run.total_s / _DAY for run in runs]
    days = _spread(total_days)
    hours = result.job.world_size * days.mean * 24
    watts = node_watts(result, gpu)
    spare_gpus = (request.spares or 0) * result.job.gpus_per_node
    price, kwh_price = request.price_per_gpu_hour, request.price_per_kwh
    low, energy, high = (mean_watts * hours / 1e6 for mean_watts in watts)
    return Projection(
        schema_version=SCHEMA_VERSION,
        script=result.job.script,
        cluster=result.job.cluster,
        gpus=result.job.world_size,
        step_time_s=step_s * facts.jitter,
        steps=facts.steps,
        tokens=request.tokens,
        work_days=job.work_s / _DAY,
        days=days,
        days_low=facts.bound(result.step_time_low_s or step_s, facts.rates[0]),
        days_high=facts.bound(result.step_time_high_s or step_s, facts.rates[1]),
        goodput=job.work_s / _DAY / days.mean,
        spent_days=mean,
        failures=sum(run.failures for run in runs) / len(runs),
        mtbf_hours=job.mtbf_s / _HOUR,
        interval_s=job.interval_s,
        best_interval_s=facts.best_s,
        young_interval_s=young_interval(facts.checkpoint_s, job.mtbf_s),
        daly_interval_s=daly_interval(facts.checkpoint_s, job.mtbf_s),
        closed_form_days=facts.expected_days(job),
        curve=facts.curve(job),
        gpu_hours=hours,
        money=None if price is None else price * hours * (1 + spare_gpus / result.job.world_size),
        energy_MWh=energy,
        energy_low_MWh=low,
        energy_high_MWh=high,
        energy_money=None if kwh_price is None else energy * 1e3 * kwh_price,
        assumptions=facts.assumptions(job, gpu),
        not_modelled=[*_cut_short(runs, request), *_NOT_MODELLED],
        partial=stop.is_partial,
    )


_NOT_MODELLED = [
    "Failures are independent of each other and of time; bad nodes that fail again and again are not.",
    "Jobs of about 1,000 GPUs fail more often than these rates say: on RSC-1 Meta measured 7.9 h between failures of "
    "jobs of 1,024 GPUs, but its rate gives 28.8 h (arXiv 2410.21680).",
    "Nodes that come back from repair join at the next restart.",
    "Evaluation, slow data loading, rollbacks after loss spikes, and queues are left out.",
]


def _cut_short(runs: Sequence[Spent], request: ProjectionRequest) -> list[str]:
    """What the figures lack where an interrupt left fewer simulated trainings than were asked for."""
    return [f"Only {len(runs)} of {request.runs} trainings were simulated."] if len(runs) < request.runs else []


def _steady(result: Result) -> tuple[float, float]:
    """Step time in seconds, and tokens per second."""
    step_s, tokens_per_s = result.step_time_s, result.throughput.tokens_per_s
    if step_s is None or not result.steps.count:
        raise InputError("the job has no optimizer step to repeat; capture a training job")
    if not tokens_per_s:
        raise InputError(
            "the job's tokens per step are unknown, so a token budget gives no number of steps; "
            "capture a job with token input"
        )
    return step_s, tokens_per_s


def _check_work(job: TrainingRun, runs: int, budget: budgets.Budget | None) -> None:
    """Raise if failures leave almost no progress, or if so many would be simulated that it takes too long."""
    total_s = expected_s(job.work_s, job.interval_s, job.checkpoint_s, job.restart_s, job.mtbf_s)
    if total_s > _ENDLESS_FACTOR * job.work_s:
        raise _endless_error(job)
    failures = min(total_s / job.mtbf_s, MAX_FAILURES)
    seconds = runs * (_RUN_SIMULATED_S + failures * _FAILURE_SIMULATED_S)
    estimate = budgets.Estimate(runs, f"runs with {failures:,.0f} failures each", seconds)
    budgets.check(estimate, budget, "raise --budget, e.g. --budget 2h")


def _train(job: TrainingRun, seed: int) -> Spent:
    try:
        return train(job, seed)
    except NeverEndsError as error:
        raise _endless_error(job) from error


def _endless_error(job: TrainingRun) -> InputError:
    return InputError(
        f"with a failure every {job.mtbf_s / 60:.1f} minutes, restarts of {job.restart_s:g} s and checkpoints of "
        f"{job.checkpoint_s:g} s the training does not end; write checkpoints faster or restart faster"
    )


def _parts(spent: Spent) -> dict[str, float]:
    return {
        "work": spent.work_s,
        "checkpoints": spent.checkpoints_s,
        "lost work": spent.lost_s,
        "restarts": spent.restarts_s,
        "waiting for repairs": spent.waiting_s,
        "missing replicas": spent.slower_s,
    }


def _spread(values: list[float]) -> Spread:
    p10, p50, p90 = np.quantile(values, (0.1, 0.5, 0.9)).tolist()
    return Spread(math.fsum(values) / len(values), p10, p50, p90)
