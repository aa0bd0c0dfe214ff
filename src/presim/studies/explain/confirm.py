"""Captures candidates on the real program: the user's command with placeholders, or a framework's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from presim.composition.plan import Plan
from presim.errors import InputError
from presim.planner.knobs import field_of, fields, short
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space, parse_knobs
from presim.planner.trials.placeholders import placeholders
from presim.planner.trials.trial import Figures, Point, Trial, Value, format_value
from presim.planner.trials.trial_messages import Reply
from presim.result.explanation import CapturedCandidate, CapturedCandidates, Gain
from presim.studies.explain.capture_file import CaptureFile, NoCaptureFile
from presim.system.files.scratch import temporary_folder
from presim.system.interrupts import caught

Progress = Callable[[str], None]
Take = Callable[[Point], tuple[str, Reply]]  # returns the name of the program that was captured, and the reply


@dataclasses.dataclass(frozen=True)
class CaptureOptions:
    """Which candidates to capture, and with which program."""

    max_plans: int = 0  # number of composed plans to capture, best first
    vary: Sequence[str] = ()  # knobs with values, as mbs=1,2,4; the first value of a placeholder is the current one
    command: Sequence[str] = ()  # command with placeholders; empty: a framework's own program
    framework: str = "auto"
    study: str | None = None  # file that stores finished captures

    def __bool__(self) -> bool:
        return bool(self.max_plans or self.vary)


@dataclasses.dataclass(frozen=True)
class CaptureCandidate:
    """One change to capture."""

    description: str
    options: str
    changed: Mapping[str, Value]
    composed: Gain | None = None


def check(captures: CaptureOptions, model: str | None) -> None:
    """Check that the options are consistent.

    Raises:
        InputError: two options contradict each other, or one needs another.
    """
    if captures.command and not captures:
        raise InputError(
            "a command after -- is captured only with --confirm K or --vary KNOB=V,V; add one, or remove the command"
        )
    if captures.max_plans and model is None:
        raise InputError(
            "--confirm captures the best composed plans, so it needs the trained model; add --model, or use --vary"
        )
    if captures.vary and not captures.command:
        raise InputError(
            "--vary needs a command after --, with a placeholder for each knob, such as -- train.py --mbs {mbs}"
        )
    if unplaced := [
        name for name in parse_knobs(captures.vary, any_name=True) if name not in placeholders(captures.command)
    ]:
        raise InputError(
            f"{unplaced[0]} is varied, but the command has no {{{unplaced[0]}}}; put it in place of its value"
        )


def current_point(captures: CaptureOptions, plan: Plan | None) -> Point:
    """The job's own values of placeholders: from the plan, or the first value of other knobs."""
    point: Point = {} if plan is None else _point(plan)
    for name, values in parse_knobs(captures.vary, any_name=True).items():
        if plan is None or field_of(name) not in fields():
            point[name] = values[0]
    return point


def varied_candidates(captures: CaptureOptions, point: Point) -> list[CaptureCandidate]:
    """One candidate for each value other than the current one."""
    candidates = []
    for name, values in parse_knobs(captures.vary, any_name=True).items():
        key = name if name in point else field_of(name)
        candidates += [
            CaptureCandidate(f"{short(key)} {format_value(value)}", f"{key} = {format_value(value)}", {key: value})
            for value in values
            if format_value(value) != format_value(point[key])
        ]
    return candidates


def plan_candidates(
    plans: Sequence[tuple[Gain, Plan]], captures: CaptureOptions, plan: Plan | None
) -> list[CaptureCandidate]:
    """Candidates of the best composed plans that fit and differ only in the command's placeholders."""
    if plan is None:
        return []
    planned_point, placeholder_fields = _point(plan), {field_of(name) for name in placeholders(captures.command)}
    candidates = []
    for gain, other in plans:
        changed = {name: value for name, value in _point(other).items() if value != planned_point[name]}
        if gain.fits is not False and (not captures.command or changed.keys() <= placeholder_fields):
            candidates.append(CaptureCandidate(gain.change, gain.options, changed, gain))
    return candidates[: captures.max_plans]


def confirm(
    captures: CaptureOptions,
    request: SearchRequest,
    point: Point,
    candidates: Sequence[CaptureCandidate],
    progress: Progress,
    take: Take | None = None,
    *,
    keeps_finished: bool = False,
) -> CapturedCandidates:
    """Capture the unchanged job and then each candidate; ``keeps_finished``: until an interrupt.

    Raises:
        InputError: the command has an unknown placeholder, or the unchanged job cannot be captured.
    """
    from presim.planner.confirm.capture import check_command  # with all frameworks' launch files

    check_command(captures.command, point)
    capture_file = CaptureFile(Path(captures.study), request) if captures.study else NoCaptureFile()
    with temporary_folder("explain") as folder:
        capture_point = take or _capture(request, Path(folder))

        def captured_reply(requested_point: Point, words: str) -> tuple[str, Reply]:
            stored_reply = capture_file.find(requested_point)
            if stored_reply is None:
                progress(f"capturing {words}")
                stored_reply = capture_point(requested_point)
                capture_file.add(requested_point, *stored_reply)
            return stored_reply

        program, baseline = captured_reply(point, "the unchanged job")
        if baseline.figures is None and not captures.command and point.get("attention", "auto") != "auto":
            # read from the capture; Hugging Face's programs choose it themselves
            point = {**point, "attention": "auto"}
            program, baseline = captured_reply(point, "the unchanged job")
        if baseline.figures is None:
            advice = (
                "correct the command"
                if captures.command
                else "correct fields that were read wrongly from the capture with --plan, or name another --framework"
            )
            raise InputError(
                f"the unchanged job cannot be captured again: {baseline.words.removesuffix('.')}; {advice}"
            )
        rows: list[CapturedCandidate] = []
        with caught(keeps_finished) as stop:
            for number, candidate in enumerate(candidates, 1):
                words = f"{candidate.description}, {number} of {len(candidates)}"
                rows.append(_row(candidate, baseline.figures, captured_reply({**point, **candidate.changed}, words)[1]))
    rows.sort(key=_order)
    return CapturedCandidates(by=program, step_time_s=baseline.figures.step_time_s, rows=rows, partial=stop.is_partial)


def request_of(subject: str, captures: CaptureOptions, options: Mapping[str, object]) -> SearchRequest:
    """The request that captures are made with."""
    return SearchRequest(
        subject=subject, space=Space({}, {}), objectives=[], options=options, framework=captures.framework,
        confirm_command=list(captures.command),
    )  # fmt: skip


def _capture(request: SearchRequest, folder: Path) -> Take:
    from presim.planner.confirm.capture import capture

    numbers = iter(range(1_000_000))

    def take(point: Point) -> tuple[str, Reply]:
        number = next(numbers)
        return capture(request, Trial(number=number, point=point, fate="open"), folder / str(number))

    return take


def _point(plan: Plan) -> Point:
    return {name: value for name, value in msgspec.structs.asdict(plan).items() if not isinstance(value, tuple)}


def _row(candidate: CaptureCandidate, before: Figures, reply: Reply) -> CapturedCandidate:
    composed, after = candidate.composed, reply.figures
    row = CapturedCandidate(
        change=candidate.description,
        options=candidate.options,
        composed_gain_s=composed.gain_s if composed else None,
        composed_throughput_ratio=composed.throughput_ratio if composed else None,
        words=reply.words,
    )
    if after is None:
        return row
    gain_s = before.step_time_s - after.step_time_s
    gain_range_s = sorted(gain_s * end / before.step_time_s for end in (before.low_s, before.high_s))
    return msgspec.structs.replace(
        row,
        step_time_s=after.step_time_s,
        gain_s=gain_s,
        gain_low_s=gain_range_s[0],
        gain_high_s=gain_range_s[1],
        throughput_ratio=_tokens(candidate, before, after) * before.step_time_s / after.step_time_s,
        memory_change_bytes=after.memory_bytes - before.memory_bytes,
        fits=after.fits,
    )


def _tokens(candidate: CaptureCandidate, before: Figures, after: Figures) -> float:
    """Tokens per step relative to before: as captured, else as composed, else 1."""
    if before.tokens_per_step and after.tokens_per_step:
        return after.tokens_per_step / before.tokens_per_step
    composed = candidate.composed
    if composed and composed.throughput_ratio:
        return composed.throughput_ratio * composed.step_time_s / (composed.step_time_s + composed.gain_s)
    return 1.0


def _order(row: CapturedCandidate) -> tuple[bool, bool, float]:
    return row.step_time_s is None, row.fits is False, -(row.throughput_ratio or 0.0)
