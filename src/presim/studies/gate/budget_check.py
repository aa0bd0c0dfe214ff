"""Checks results against budgets and a baseline."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.result import Result
from presim.studies.gate.budget_files import JobBudget
from presim.system.files.field_docs import doc
from presim.units import GIB, count, percent, seconds

SCHEMA_VERSION = 1


class LimitCheck(msgspec.Struct, frozen=True):
    """One limit of one job."""

    limit: Annotated[str, doc("Name of the limit, as in the file of budgets.")]
    passed: Annotated[bool, doc("Whether the job keeps it.")]
    value: Annotated[float | None, doc("The predicted figure, in the limit's unit; null where it is not known.")]
    bound: Annotated[float, doc("The limit.")]
    sentence: Annotated[str, doc("What was found.")]


class Verdict(msgspec.Struct, frozen=True):
    """One job compared with its budget."""

    name: Annotated[str, doc("The job.")]
    passed: Annotated[bool, doc("Whether it ran and keeps every limit.")]
    failure: Annotated[str, doc("Why there is no prediction that stands; empty where there is one.")]
    checks: Annotated[list[LimitCheck], doc("Its limits.")]
    step_time_s: Annotated[float | None, doc("Seconds of a step.")]
    step_time_change_s: Annotated[float | None, doc("Against the baseline, where it has this job.")]
    memory_bytes: Annotated[int | None, doc("Bytes of the device in use at the peak.")]
    memory_change_bytes: Annotated[int | None, doc("Against the baseline.")]
    cluster: Annotated[str, doc("Its nodes and GPUs, as in 2 x 8 H100; empty where there is no prediction.")] = ""


class Gate(msgspec.Struct, frozen=True):
    """The answer of `presim gate`."""

    schema_version: Annotated[int, doc("Version of this schema.")]
    passed: Annotated[bool, doc("Whether every job keeps its budget.")]
    jobs: Annotated[list[Verdict], doc("The jobs in the order of the file.")]
    partial: Annotated[bool, doc("Whether a signal ended it before all jobs were predicted; the others fail.")] = False
    kind: Annotated[str, doc("Kind of the result.")] = "gate"

    def __repr__(self) -> str:
        passed = sum(verdict.passed for verdict in self.jobs)
        outcome = "passed" if self.passed else "failed"
        return f"<Gate {outcome}: {passed} of {len(self.jobs)} jobs keep their budgets>"


def verdict(budget: JobBudget, result: Result | None, failure: str, baseline: Result | None) -> Verdict:
    """The verdict on one job. ``result``: None if there is none; ``failure``: why the prediction failed."""
    checks = [] if result is None else _checks(budget, result, baseline)
    memory = None if result is None else result.memory.used_bytes
    step = None if result is None else result.step_time_s
    before = None if baseline is None else baseline.step_time_s
    return Verdict(
        name=budget.name,
        passed=not failure and all(check.passed for check in checks),
        failure=failure,
        checks=checks,
        step_time_s=step,
        step_time_change_s=None if step is None or before is None else step - before,
        memory_bytes=memory,
        memory_change_bytes=None if memory is None or baseline is None else memory - baseline.memory.used_bytes,
        cluster="" if result is None else result.job.cluster,
    )


def _checks(budget: JobBudget, result: Result, baseline: Result | None) -> list[LimitCheck]:
    figures = [
        ("step_time_s", budget.step_time_s, result.step_time_s, "step time", seconds, True),
        ("memory_GiB", budget.memory_GiB, result.memory.used_bytes / GIB, "memory", _gib, True),
        (
            "exposed_communication_s",
            budget.exposed_communication_s,
            result.time.exposed_communication_s,
            "exposed communication",
            seconds,
            True,
        ),
        ("mfu", budget.mfu, result.mfu, "MFU", percent, False),
        ("tokens_per_s", budget.tokens_per_s, result.throughput.tokens_per_s, "tokens per second", count, False),
    ]
    checks = []
    for limit, bound, value, words, shown, at_most in figures:
        if bound is not None:
            checks.append(_check(limit, bound, value, words, shown, at_most))
    return [*checks, *_increases(budget, result, baseline)]


def _check(limit: str, bound: float, value: float | None, words: str, shown: object, at_most: bool) -> LimitCheck:
    show = shown if callable(shown) else str
    if value is None:
        return LimitCheck(limit, False, None, bound, f"{words} is not known")
    is_within = value <= bound if at_most else value >= bound
    relation = ("within" if is_within else "above") if at_most else ("above" if is_within else "below")
    return LimitCheck(limit, is_within, value, bound, f"{words} {show(value)}, {relation} the limit of {show(bound)}")


def _increases(budget: JobBudget, result: Result, baseline: Result | None) -> list[LimitCheck]:
    pairs = (
        ("step_time_increase", budget.step_time_increase, "step time", result.step_time_s, _step(baseline)),
        (
            "memory_increase",
            budget.memory_increase,
            "memory",
            result.memory.used_bytes,
            None if baseline is None else baseline.memory.used_bytes,
        ),
    )
    checks = []
    for limit, bound, words, after, before in pairs:
        if bound is None:
            continue
        if not before or after is None:
            sentence = f"{words} has no baseline to be compared with"
            checks.append(
                LimitCheck(limit, baseline is None, None, bound, sentence)
            )  # the first run creates the baseline
            continue
        change = after / before - 1
        relation = "within" if change <= bound else "above"
        sentence = f"{words} changed by {change:+.1%}, {relation} the limit of {bound:+.1%}"
        checks.append(LimitCheck(limit, change <= bound, change, bound, sentence))
    return checks


def _step(result: Result | None) -> float | None:
    return None if result is None else result.step_time_s


def _gib(value: float) -> str:
    return f"{value:.2f} GiB"
