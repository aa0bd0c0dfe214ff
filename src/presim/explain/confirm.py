"""Captures candidates on the real program: the user's command with placeholders, or a framework's own."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from presim.compose.plan import Plan
from presim.errors import InputError
from presim.explain.kept import Kept, Never
from presim.figures.explanation import Captured, Confirmation, Gain
from presim.search.confirm.capture import capture, check_command
from presim.search.knobs import field_of, fields, short
from presim.search.request import Request
from presim.search.space import Space, parse_knobs
from presim.search.trials.evaluator import placeholders
from presim.search.trials.job import Reply
from presim.search.trials.trial import Figures, Point, Trial, Value, format_value

Progress = Callable[[str], None]
Take = Callable[[Point], tuple[str, Reply]]  # with what it was captured, and the reply


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is to be captured, and how."""

    most: int = 0  # of the composed plans, the best first
    vary: Sequence[str] = ()  # knobs with values, as mbs=1,2,4; of a placeholder the first value is the present one
    command: Sequence[str] = ()  # with placeholders; empty: on a framework
    framework: str = "auto"
    study: str | None = None  # file that replies are kept in

    def __bool__(self) -> bool:
        return bool(self.most or self.vary)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One change to capture."""

    what: str
    options: str
    changed: Mapping[str, Value]
    composed: Gain | None = None


def check(asked: Asked, model: str | None) -> None:
    """Raise where options do not go together.

    Raises:
        InputError: which do not, and what to do.
    """
    if asked.command and not asked:
        raise InputError(
            "a command behind -- is captured with --confirm K or --vary KNOB=V,V; add one, or leave it out"
        )
    if asked.most and model is None:
        raise InputError(
            "--confirm captures the best composed plans: name what was trained with --model, or use --vary"
        )
    if asked.vary and not asked.command:
        raise InputError(
            "--vary needs the command behind --, with a placeholder for each knob: -- train.py --mbs {mbs}"
        )
    if unplaced := [name for name in parse_knobs(asked.vary, own=True) if name not in placeholders(asked.command)]:
        raise InputError(
            f"{unplaced[0]} is varied, but the command has no {{{unplaced[0]}}}: put it where its value goes"
        )


def present(asked: Asked, plan: Plan | None) -> Point:
    """The values of placeholders as the job has them: of the plan, of other knobs the first one."""
    point: Point = {} if plan is None else _point(plan)
    for name, values in parse_knobs(asked.vary, own=True).items():
        if plan is None or field_of(name) not in fields():
            point[name] = values[0]
    return point


def varied(asked: Asked, point: Point) -> list[Candidate]:
    """A candidate for each value that is not the present one."""
    found = []
    for name, values in parse_knobs(asked.vary, own=True).items():
        key = name if name in point else field_of(name)
        found += [
            Candidate(f"{short(key)} {format_value(value)}", f"{key} = {format_value(value)}", {key: value})
            for value in values
            if format_value(value) != format_value(point[key])
        ]
    return found


def planned(plans: Sequence[tuple[Gain, Plan]], asked: Asked, plan: Plan | None) -> list[Candidate]:
    """The best composed plans that fit and that the command has placeholders for, as candidates."""
    if plan is None:
        return []
    before, placed = _point(plan), {field_of(name) for name in placeholders(asked.command)}
    found = []
    for gain, other in plans:
        changed = {name: value for name, value in _point(other).items() if value != before[name]}
        if gain.fits is not False and (not asked.command or changed.keys() <= placed):
            found.append(Candidate(gain.what, gain.options, changed, gain))
    return found[: asked.most]


def confirm(asked: Asked, request: Request, point: Point, candidates: Sequence[Candidate], progress: Progress,
            take: Take | None = None) -> Confirmation:  # fmt: skip
    """The job as it is and each candidate, captured one after the other.

    Raises:
        InputError: the command has an unknown placeholder, or the job itself cannot be captured.
    """
    check_command(asked.command, point)
    kept = Kept(Path(asked.study), request) if asked.study else Never()
    with tempfile.TemporaryDirectory(prefix="presim-explain-") as folder:
        captured = take or _capture(request, Path(folder))

        def ask(wanted: Point, words: str) -> tuple[str, Reply]:
            found = kept.find(wanted)
            if found is None:
                progress(f"capturing {words}")
                found = captured(wanted)
                kept.add(wanted, *found)
            return found

        by, before = ask(point, "the job as it is")
        if before.figures is None:
            raise InputError(f"the job as it is cannot be captured again: {before.words}; correct the command")
        rows = []
        for number, candidate in enumerate(candidates, 1):
            words = f"{candidate.what}, {number} of {len(candidates)}"
            rows.append(_row(candidate, before.figures, ask({**point, **candidate.changed}, words)[1]))
    rows.sort(key=_order)
    return Confirmation(by=by, step_time_s=before.figures.step_time_s, rows=rows)


def request_of(subject: str, asked: Asked, options: Mapping[str, object]) -> Request:
    """What a capture needs to know."""
    return Request(
        subject=subject, space=Space({}, {}), objectives=[], options=options, framework=asked.framework,
        confirm_command=list(asked.command),
    )  # fmt: skip


def _capture(request: Request, folder: Path) -> Take:
    numbers = iter(range(1_000_000))

    def take(point: Point) -> tuple[str, Reply]:
        number = next(numbers)
        return capture(request, Trial(number=number, point=point, fate="open"), folder / str(number))

    return take


def _point(plan: Plan) -> Point:
    return {name: value for name, value in msgspec.structs.asdict(plan).items() if not isinstance(value, tuple)}


def _row(candidate: Candidate, before: Figures, reply: Reply) -> Captured:
    composed, after = candidate.composed, reply.figures
    row = Captured(
        what=candidate.what,
        options=candidate.options,
        composed_gain_s=composed.gain_s if composed else None,
        composed_throughput_ratio=composed.throughput_ratio if composed else None,
        words=reply.words,
    )
    if after is None:
        return row
    gained = before.step_time_s - after.step_time_s
    ends = sorted(gained * end / before.step_time_s for end in (before.low_s, before.high_s))
    return msgspec.structs.replace(
        row,
        step_time_s=after.step_time_s,
        gain_s=gained,
        gain_low_s=ends[0],
        gain_high_s=ends[1],
        throughput_ratio=_tokens(candidate, before, after) * before.step_time_s / after.step_time_s,
        memory_change_bytes=after.memory_bytes - before.memory_bytes,
        fits=after.fits,
    )


def _tokens(candidate: Candidate, before: Figures, after: Figures) -> float:
    """Tokens of a step over those before: as captured, else as composed, else the same."""
    if before.tokens_per_step and after.tokens_per_step:
        return after.tokens_per_step / before.tokens_per_step
    composed = candidate.composed
    if composed and composed.throughput_ratio:
        return composed.throughput_ratio * composed.step_time_s / (composed.step_time_s + composed.gain_s)
    return 1.0


def _order(row: Captured) -> tuple[bool, bool, float]:
    return row.step_time_s is None, row.fits is False, -(row.throughput_ratio or 0.0)
