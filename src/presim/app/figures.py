"""The key figures of a result of any verb, as numbers that can be compared and as text, and what they are of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from presim.app.key_figures import KeyFigure, Summary
from presim.app.study_figures import STUDIES
from presim.planner.study import Answer
from presim.planner.trials.trial import format_value
from presim.post_training.rl_answer import RlAnswer
from presim.report import content
from presim.result import Result
from presim.result.deployments import DeployResult
from presim.result.memory import Memory
from presim.result.serving import ServingResult
from presim.result.training import Projection
from presim.studies.saved_results.read_result import SavedResult
from presim.units import GIB, count, percent, seconds, seconds_range, three_digits


def summary_of(result: SavedResult) -> Summary:
    """The summary of a result; of kinds without key figures, its name alone.

    Raises:
        InputError: the result lacks what its figures are made of.
    """
    summarise = _SUMMARIES.get(result.kind.name)
    summary = result.read_by(summarise) if summarise else Summary("", "", "", [])
    return msgspec.structs.replace(summary, warning=f"partial: {result.partial}") if result.partial else summary


def _of_run(result: Result) -> Summary:
    job, memory = result.job, result.memory
    figures = [_step_time(result)]
    rates = result.throughput
    for key, rate, unit in (("tokens", rates.tokens_per_s, "tokens"), ("samples", rates.samples_per_s, "samples")):
        if rate is not None:
            text = count(rate) if rate >= 1000 else three_digits(rate)
            figures.append(KeyFigure(key, f"{unit} per second", rate, text, "whole job", 1))
    if result.mfu is not None:
        hfu = f"HFU {percent(result.hfu)}" if result.hfu is not None else ""
        figures.append(KeyFigure("mfu", "MFU", result.mfu, percent(result.mfu), hfu, 1))
    if memory.peak_reserved_bytes:
        used_bytes = memory.used_bytes
        verdict = {True: "fits", False: "does not fit", None: "unknown"}[memory.fits]
        figures.append(_memory(used_bytes, f"of {memory.device_total_bytes / GIB:,.1f}: {verdict}"))
    if result.step_time_s:
        exposed_s = result.time.exposed_communication_s
        share = percent(exposed_s / result.step_time_s)
        figures.append(KeyFigure("exposed", "exposed communication", exposed_s, seconds(exposed_s), share, -1, "s"))
    warning = ": ".join(content.failure(result) or ()) or (_shortage(memory) if memory.fits is False else "")
    return Summary(job.script, job.gpu, job.cluster, figures, warning)


def _shortage(memory: Memory) -> str:
    """By how much it does not fit, that the times are of a step that could not run, and what would free memory."""
    return " ".join(
        part for part in (memory.verdict, "The times are those of GPUs with enough memory.", memory.advice) if part
    )


def _step_time(result: Result) -> KeyFigure:
    if result.step_time_s is None:
        return KeyFigure("step", "step time", None, "unknown", "no step completed")
    low, high = result.step_time_low_s, result.step_time_high_s
    interval = seconds_range(low, high) if low is not None and high is not None and low < high else ""
    return KeyFigure("step", "step time", result.step_time_s, seconds(result.step_time_s), interval, -1, "s")


def _memory(used_bytes: int, remark: str = "") -> KeyFigure:
    return KeyFigure("memory", "device memory", used_bytes / GIB, f"{used_bytes / GIB:,.1f} GiB", remark, -1, "GiB")


_TAIL = "after half of the engines are done"
_LATENCIES = (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2el", "end to end"))
_SERVING_RATES = (("output_throughput", "output tokens per second"), ("request_throughput", "requests per second"))


def _of_serving(result: ServingResult) -> Summary:
    document = msgspec.to_builtins(result)
    deployment, served = document["deployment"], document["figures"]
    intervals = document.get("intervals_80", {})
    figures = []
    for key, label in _LATENCIES:
        for level, statistic in (("mean", "mean"), ("p99", "p99")):
            name = f"{level}_{key}_ms"
            if served.get(name) is not None:
                remark, text = _interval(intervals.get(name), " ms"), _ms(served[name])
                low, high = intervals.get(name) or (None, None)
                figures.append(
                    KeyFigure(name, f"{label}, {statistic}", served[name], text, remark, -1, "ms", low, high)
                )
    for name, label in _SERVING_RATES:
        if served.get(name) is not None:
            figures.append(
                KeyFigure(name, label, served[name], _number(served[name]), _interval(intervals.get(name)), 1)
            )
    figures.append(_rate("per_gpu", "output tokens/s per GPU", document["per_gpu_output_throughput"]))
    if document["sustainable_request_rate"]:
        figures.append(_rate("sustainable", "sustainable requests/s", document["sustainable_request_rate"]))
    if document["largest_request_rate_within_slo"]:
        figures.append(_rate("within_slo", "knee, requests/s", _knee(document), "sustainable within the SLO"))
    money = (document.get("cost") or {}).get("money_per_million_output_tokens")
    if money is not None:
        figures.append(KeyFigure("money", "price per million output tokens", money, three_digits(money), "", -1))
    replicas = deployment["replicas"] + deployment["prefill_replicas"]
    engines = f"{replicas} engine{'s' if replicas > 1 else ''} of {deployment['plan']}"
    cluster = f"{deployment['gpus']} x {deployment['gpu']}, {engines}"
    warning = "overloaded: requests arrive faster than they are served" if document["overloaded"] else ""
    return Summary(
        f"{deployment['model']}: {document['workload']['name']}", deployment["gpu"], cluster, figures, warning
    )


def _knee(document: dict[str, Any]) -> float:
    """The largest sustainable rate within the SLO; older results may have a larger one of a short load."""
    return float(min(document["largest_request_rate_within_slo"], document["sustainable_request_rate"] or math.inf))


def _rate(key: str, label: str, number: float, remark: str = "") -> KeyFigure:
    return KeyFigure(key, label, number, _number(number), remark, 1)


def _of_search(answer: Answer) -> Summary:
    trial = answer.trial(answer.best[0]) if answer.best else None
    if trial is None or trial.figures is None:
        return Summary(answer.subject, "", "", [], "no plan fits" if not answer.best else "")
    best = trial.figures
    figures = [
        KeyFigure(
            "step",
            "step time of the best",
            best.step_time_s,
            seconds(best.step_time_s),
            seconds_range(best.low_s, best.high_s),
            -1,
        ),
        _memory(best.memory_bytes),
        KeyFigure("gpus", "GPUs", best.gpus, f"{best.gpus:,}", "", -1),
        KeyFigure("plans", "plans", len(answer.trials), f"{len(answer.trials):,}", f"{len(answer.best):,} fit"),
    ]
    if best.tokens_per_step is not None:
        rate = best.tokens_per_step / best.step_time_s / best.gpus
        figures.insert(1, KeyFigure("tokens_per_gpu", "tokens/s per GPU", rate, _number(rate), "", 1))
    if best.mfu is not None:
        figures.insert(1, KeyFigure("mfu", "MFU", best.mfu, percent(best.mfu), "", 1))
    knobs = [name for name, values in answer.varied.items() if len(values) > 1 and name in trial.point]
    plan = ", ".join(f"{name.replace('_', ' ')} {format_value(trial.point[name])}" for name in knobs)
    return Summary(
        f"{answer.subject}; best plan: {plan}" if plan else answer.subject,
        best.gpu,
        f"{best.gpus:,} x {best.gpu}",
        figures,
    )


def _of_deployments(answer: DeployResult) -> Summary:
    best = answer.best or answer.nearest
    if best is None:
        lacking = answer.without_room
        deployment, gpu = (lacking.deployment, lacking.gpu) if lacking else ("", "")
        return Summary(_deployed(answer, deployment), gpu, "", [], "no deployment meets the SLO")
    figures = []
    for key, label, better in (
        ("tokens_per_s_per_gpu", "output tokens/s per GPU", 1),
        ("request_rate", "requests per second", 1),
        ("ttft_ms", "TTFT, mean", -1),
        ("tpot_ms", "TPOT, mean", -1),
        ("gpus", "GPUs", -1),
    ):
        value = getattr(best, key)
        if value is not None:
            text = _ms(value) if key.endswith("_ms") else _number(value)
            figures.append(KeyFigure(key, label, value, text, "", better))
    warning = "" if answer.best else "no deployment meets the SLO; this is the nearest"
    gpus = dict.fromkeys(gpu for gpu in (best.prefill_gpu, best.gpu) if gpu)
    cluster = f"{best.gpus:,} x {' and '.join(gpus)}" if gpus else ""
    return Summary(_deployed(answer, best.deployment), ", ".join(gpus), cluster, figures, warning)


def _deployed(answer: DeployResult, deployment: str) -> str:
    """The model, the load and the plan, as far as the result names them."""
    load = answer.workload.name if answer.workload else ""
    return ": ".join(part for part in (answer.model, deployment or "no plan", load) if part)


def _of_training(projection: Projection) -> Summary:
    days = projection.days
    figures = [
        KeyFigure(
            "days",
            "days",
            days.mean,
            three_digits(days.mean),
            f"{three_digits(projection.days_low)} to {three_digits(projection.days_high)}",
            -1,
        ),
        KeyFigure("goodput", "goodput", projection.goodput, percent(projection.goodput), "", 1),
        KeyFigure("gpu_hours", "GPU hours", projection.gpu_hours, count(projection.gpu_hours), "", -1),
        KeyFigure(
            "energy",
            "energy",
            projection.energy_MWh,
            f"{three_digits(projection.energy_MWh)} MWh",
            f"{three_digits(projection.energy_low_MWh)} to {three_digits(projection.energy_high_MWh)} MWh",
            -1,
        ),
    ]
    if projection.money is not None:
        figures.append(KeyFigure("money", "price", projection.money, count(projection.money), "", -1))
    return Summary(f"{projection.script}, {count(projection.tokens)} tokens", "", projection.cluster, figures)


def _of_rl(answer: RlAnswer) -> Summary:
    step = answer.figures
    interval = seconds_range(step.step_time_low_s, step.step_time_high_s)
    longest = max(answer.phases, key=lambda phase: phase.share)
    figures = [
        KeyFigure("rl_step", "step time", step.step_time_s, seconds(step.step_time_s), interval, -1, "s"),
        KeyFigure("longest", "longest phase", None, longest.phase, f"{percent(longest.share)} of the step"),
        _rate("tokens_per_gpu", "trained tokens/s per GPU", step.tokens_per_s_per_gpu),
        _rate("responses", "responses per second", step.responses_per_s),
        KeyFigure(
            "idle", "engines idle in rollouts", step.rollout_idle_share, percent(step.rollout_idle_share), "", -1
        ),
        KeyFigure("tail", "tail of the rollouts", step.rollout_tail_s, seconds(step.rollout_tail_s), _TAIL, -1, "s"),
        KeyFigure("staleness", "staleness", step.mean_staleness, f"{step.mean_staleness:.2f} steps", "mean", -1),
    ]
    if step.kWh is not None:
        figures.append(KeyFigure("energy", "energy of a step", step.kWh, _energy(step.kWh), "", -1))
    if step.money_per_thousand_steps is not None:
        money = step.money_per_thousand_steps
        figures.append(KeyFigure("money", "price of 1,000 steps", money, three_digits(money), "", -1))
    gpus = sum(pool.gpus for pool in answer.pools)
    cluster = f"{gpus:,} x {answer.gpu}, {answer.placement}"
    warning = "".join(answer.misfit)
    return Summary(f"{answer.algorithm} on {answer.model}", answer.gpu, cluster, figures, warning)


def _energy(kilowatt_hours: float) -> str:
    """In kWh, or in Wh where those are too few for three digits."""
    return f"{kilowatt_hours:.3g} kWh" if kilowatt_hours >= 0.1 else f"{kilowatt_hours * 1e3:.3g} Wh"


def _interval(bounds: Iterable[float] | None, unit: str = "") -> str:
    return " to ".join(_number(bound) for bound in bounds) + unit if bounds else ""


def _ms(value: float) -> str:
    return f"{_number(value)} ms"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


_SUMMARIES: dict[str, Callable[[Any], Summary]] = {
    "run": _of_run,
    "serving": _of_serving,
    "search": _of_search,
    "deployments": _of_deployments,
    "training": _of_training,
    "rl": _of_rl,
    **STUDIES,
}
