"""Render a search's answer as a terminal table and as CSV."""

from __future__ import annotations

import collections
import io
from collections.abc import Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from presim.planner.answer.why import show
from presim.planner.knobs import short
from presim.planner.objectives import OBJECTIVES, Work, tokens_per_s_per_gpu
from presim.planner.study import Answer
from presim.planner.trials.trial import Figures, Trial, format_value
from presim.system.files import encode_csv_rows
from presim.units import GIB, percent, seconds, seconds_range, three_digits

_SHOWN = 10
_WIDTH = 130
_UNBOUND = 10_000  # columns: wide enough to measure a table's natural width
_SHOWN_DIFFERENCE = 0.005  # smallest share of the summed differences that is printed
_EXTRA = ("gpu_hours", "money", "days", "gpus", "tokens_per_s", "energy")
# columns dropped on narrow consoles, in this order
_LEFT_OUT = ("spare", "limit", "MFU", "exposed", "80 % interval", "GiB used", "tokens/s/GPU")
_COLUMNS = ("step time", "80 % interval", "tokens/s/GPU", "MFU", "GiB used", "spare", "exposed", "limit")


def write(answer: Answer, file: IO[str] | None = None, *, console: Console | None = None) -> None:
    """Print the answer."""
    console = console or Console(file=file, highlight=False, markup=False, emoji=False)
    console.width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    console.print(render(answer, console))


def render_widest(answer: Answer) -> RenderableType:
    """The answer with all columns of figures."""
    return render(answer, Console(width=_WIDTH, file=io.StringIO()))


def render(answer: Answer, console: Console) -> RenderableType:
    """The answer as a rich renderable that fits the console's width."""
    work = answer.work
    title = Text.assemble(
        ("presim search ", "bold"), answer.subject, f" · {answer.hardware}" if answer.hardware else ""
    )
    parts: list[RenderableType] = [title, _fates(answer)]
    if answer.best:
        parts += [_fitting(answer, work, console), _decision(answer)]
        parts += [Text(line) for line in _why(answer)]
    if answer.confirmation is not None and answer.confirmation.order:
        parts.append(_captures_table(answer))
    if misfits := _misfits(answer):
        parts.append(Text(misfits))
    if answer.best and (failures := _failures(answer)):  # without a best plan, a note says it
        parts.append(Text(failures))
    parts += [Text(note, "bold red" if not answer.best else "") for note in answer.notes]
    return Group(*(Padding(part, (0, 0, 0, 0)) for part in parts))


def _fates(answer: Answer) -> Text:
    counts = collections.Counter(trial.fate for trial in answer.trials)
    fit = sum(trial.fits for trial in answer.trials)
    listed = [f"{counts['priced']:,} priced ({fit:,} fit)"]
    listed += [f"{counts[fate]:,} {fate}" for fate in ("pruned", "illegal", "failed", "open") if counts[fate]]
    partial_note = "; partial: the search ended before all were reached" if answer.partial else ""
    return Text(f"{size_of(answer)}, {answer.strategy}: {', '.join(listed)}{partial_note}", "dim")


def size_of(answer: Answer) -> str:
    """How many plans the ledger has, and of how many points."""
    if answer.points <= len(answer.trials) or answer.strategy != "exhaustive":
        return f"{len(answer.trials):,} points"
    return f"{len(answer.trials):,} plans of {answer.points:,} points"


def _fitting(answer: Answer, work: Work, console: Console) -> Table:
    """Table of the plans. A narrow console drops figures first; if that is not enough, all knobs share one column."""
    columns = list(_COLUMNS)
    for left_out in ("", *_LEFT_OUT):
        if left_out:
            columns.remove(left_out)
        table = _plans(answer, work, columns, _varying(answer))
        if console.measure(table, options=console.options.update(width=_UNBOUND)).maximum <= console.width:
            return table
    return _plans(answer, work, ["step time", "80 % interval", "GiB used"], None)


def _plans(answer: Answer, work: Work, columns: Sequence[str], knobs: Sequence[str] | None) -> Table:
    """One column per name in ``knobs``; None puts all knobs into one column."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("", justify="right")
    for knob in knobs or ():
        table.add_column(short(knob), justify="right", no_wrap=True)
    if knobs is None:
        table.add_column("plan", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right" if column != "limit" else "left", no_wrap=True)
    if shows_sources := answer.from_framework is not None or answer.uncaptured_name == "extended":
        table.add_column("from", no_wrap=True)
    extra = _extra(answer, work)
    for name in extra:
        table.add_column(name.replace("_", " "), justify="right")
    shown = answer.best[:_SHOWN]
    shown += [number for number in answer.front if number not in shown][:_SHOWN]
    for rank, number in enumerate(shown, 1):
        trial = answer.trial(number)
        assert trial.figures is not None
        cells = [f"{rank}{'*' if len(answer.objectives) > 1 and number in answer.front else ''}"]
        cells += (
            [show(trial.point, _varying(answer))]
            if knobs is None
            else [format_value(trial.point[knob]) for knob in knobs]
        )
        shown_cells = dict(zip(_COLUMNS, _cells(trial.figures)))
        cells += [shown_cells[column] for column in columns]
        if shows_sources:
            cells.append(_source(answer, trial.figures))
        for name in extra:
            value = OBJECTIVES[name].of(trial.figures, work)
            cells.append("-" if value is None else OBJECTIVES[name].format(value))
        table.add_row(*cells, style="bold" if rank == 1 else "")
    return table


def _source(answer: Answer, figures: Figures) -> str:
    """What answered for a plan."""
    is_framework = figures.source == "framework" and answer.from_framework is not None
    return answer.from_framework.framework if is_framework and answer.from_framework else figures.source


def _varying(answer: Answer) -> list[str]:
    return [name for name, values in answer.varied.items() if len(values) > 1]


def _extra(answer: Answer, work: Work) -> list[str]:
    names = [name for name in answer.objectives if name in _EXTRA]
    if work.tokens:
        names += ["days", "gpu_hours", *(["money"] if work.price_per_gpu_hour else [])]
    return list(dict.fromkeys(names))


def _cells(figures: Figures) -> list[str]:
    rate = tokens_per_s_per_gpu(figures)
    return [
        seconds(figures.step_time_s),
        seconds_range(figures.low_s, figures.high_s),
        "-" if rate is None else f"{rate:,.0f}",
        "-" if figures.mfu is None else percent(figures.mfu),
        three_digits(figures.memory_bytes / GIB),
        three_digits(figures.headroom_bytes / GIB),
        percent(figures.exposed_communication_s / figures.step_time_s),
        figures.limits[0].replace("_", " ") if figures.limits else "",
    ]


def _decision(answer: Answer) -> Text:
    if len(answer.objectives) > 1:
        return Text(f"* {len(answer.front)} on the Pareto front of {' and '.join(answer.objectives)}")
    close = len(answer.undecided)
    if len(answer.best) == 1:
        return Text(f"The only plan of {len(answer.trials):,} that meets every constraint{_not_evaluated(answer)}.")
    if close < 2:
        return Text("The first is better than all others: no 80 % interval overlaps with its own.")
    return Text(f"Undecided between the first {close}: their 80 % intervals overlap. Measure them.")


def _not_evaluated(answer: Answer) -> str:
    """Mention plans without figures: a pruned plan may meet every constraint, but is proven no better."""
    pruned = sum(trial.fate == "pruned" for trial in answer.trials)
    unreached = sum(trial.fate == "open" for trial in answer.trials)
    parts = [f"{pruned:,} pruned"] * bool(pruned) + [f"{unreached:,} not reached"] * bool(unreached)
    return f" among those evaluated; {' and '.join(parts)}" if parts else ""


def _why(answer: Answer) -> list[str]:
    lines = []
    mattering = [f"{short(name)} {percent(share)}" for name, share in answer.importance.items() if share >= 0.005]
    if mattering:
        lines.append(f"Importance (share of the variance that each knob explains by itself): {', '.join(mattering)}")
    if answer.loses and len(answer.best) > 1:
        second = answer.trial(answer.best[1])
        parts = [
            f"{name} {'+' if value > 0 else '-'}{seconds(abs(value))}"
            for name, value in answer.loses.items()
            if abs(value) > _SHOWN_DIFFERENCE * sum(map(abs, answer.loses.values()))
        ]
        lines.append(f"The second, {show(second.point, _varying(answer))}, compared with the first: {', '.join(parts)}")
    return lines


def _captures_table(answer: Answer) -> Table:
    """Table of composed (or extended) and captured step times, in captured order."""
    assert answer.confirmation is not None
    table = Table(box=None, padding=(0, 1), header_style="dim", title="Captured", title_justify="left")
    for name in ("", "was", "plan", "on", answer.uncaptured_name, "captured", "difference"):
        table.add_column(name, justify="left" if name in ("plan", "on") else "right")
    capture_by_number = {capture.number: capture for capture in answer.confirmation.trials}
    before = [capture.number for capture in answer.confirmation.trials]
    for rank, number in enumerate(answer.confirmation.order, 1):
        composed, captured = answer.trial(number).figures, capture_by_number[number].figures
        assert composed is not None
        assert captured is not None
        table.add_row(
            str(rank),
            str(before.index(number) + 1),
            show(answer.trial(number).point, _varying(answer)),
            capture_by_number[number].framework,
            seconds(composed.step_time_s),
            seconds(captured.step_time_s),
            f"{composed.step_time_s / captured.step_time_s - 1:+.1%}",
        )
    return table


def _misfits(answer: Answer) -> str:
    lacking = sorted(
        (trial for trial in answer.trials if trial.figures is not None and trial.figures.headroom_bytes < 0),
        key=_lack,
    )
    if not lacking:
        return ""
    shown = [
        f"{show(trial.point, _varying(answer))} by {three_digits(_lack(trial) / GIB)} GiB" for trial in lacking[:3]
    ]
    return f"{len(lacking):,} do not fit; the nearest: {'; '.join(shown)}"


def _failures(answer: Answer) -> str:
    failed = [trial for trial in answer.trials if trial.fate == "failed"]
    if not failed:
        return ""
    return f"{len(failed):,} failed; the first, {show(failed[0].point, _varying(answer))}: {failed[0].words}"


def _lack(trial: Trial) -> int:
    assert trial.figures is not None
    return -trial.figures.headroom_bytes


def csv_table(answer: Answer) -> bytes:
    """The ledger as CSV: one line per trial, feasible trials first from best to worst, then the others by number."""
    knobs = [*answer.varied, *answer.fixed]
    measures = [name for name in Figures.__struct_fields__ if name not in ("limits", "by_category")]
    derived = [name for name in OBJECTIVES if name not in ("step_time", "gpus", "memory_headroom")]
    header = ["rank", "number", "fate", *knobs, *measures, *derived, "limits", "rule", "words"]
    rank = {number: index for index, number in enumerate(answer.best, 1)}
    trials = sorted(answer.trials, key=lambda trial: (rank.get(trial.number, len(rank) + 1), trial.number))
    return encode_csv_rows(header, (_row(trial, rank, knobs, measures, derived, answer.work) for trial in trials))


def _row(
    trial: Trial,
    rank: dict[int, int],
    knobs: Sequence[str],
    measures: Sequence[str],
    derived: Sequence[str],
    work: Work,
) -> list[object]:
    figures = trial.figures
    numbers: list[object] = [""] * (len(measures) + len(derived) + 1)
    if figures is not None:
        numbers = [getattr(figures, name) for name in measures]
        numbers += [OBJECTIVES[name].of(figures, work) for name in derived]
        numbers = ["" if value is None else value for value in numbers] + [" ".join(figures.limits)]
    point = [format_value(trial.point[knob]) if knob in trial.point else "" for knob in knobs]
    return [rank.get(trial.number, ""), trial.number, trial.fate, *point, *numbers, trial.rule, trial.words]
