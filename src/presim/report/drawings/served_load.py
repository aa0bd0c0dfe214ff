"""A served load in a page: batch, queue, KV cache and step time over the run, and the times of requests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from markupsafe import Markup

from presim.report.drawings.drawing import Drawing, legend
from presim.report.drawings.lines import Axes, Line, line_chart
from presim.report.drawings.scales import round_ticks, tick_text
from presim.result.serving import EnginesOverTime, LoadOverTime, RequestTimes
from presim.units import seconds

PHASES = ("queued", "prefill", "decode")
_MOST_TICKS = 7
_SECONDS, _QUEUED, _STEP = "seconds", "--part-queued", "--part-compute"
_ENGINES = ("--part-decode", "--part-prefill", "--part-queued", "--part-exposed-communication")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")  # tell lines apart without colours


def served_load(load: LoadOverTime) -> list[Drawing]:
    """Batch and queue, KV cache, and time of a step, over the run."""
    batch = [
        Line("in batches", load.time_s, load.running, _STEP, is_filled=True),
        Line("waiting", load.time_s, load.waiting, _QUEUED, dashes="6 4"),
    ]
    peaks = f"at most {max(load.running)} in batches and {max(load.waiting)} waiting"
    used = [share * 100 for share in load.kv_use]
    cache = f"at most {max(used):.1f} % of the blocks"
    return [
        Drawing("Batch and queue over time", line_chart(batch, Axes(_SECONDS, "requests"), peaks), peaks),
        Drawing(
            "KV cache over time",
            line_chart(
                [Line("in use", load.time_s, used, "--part-kv-cache", is_filled=True)],
                Axes(_SECONDS, "% of the blocks"),
                cache,
            ),
            cache,
        ),
        Drawing(
            "Time of a step",
            line_chart([Line("a step", load.time_s, load.step_ms, _STEP)], Axes(_SECONDS, "ms"), "Time of a step"),
            "mean of the engines that have one",
        ),
    ]


def engines_over_time(engines: EnginesOverTime, end_s: float) -> Drawing:
    """Number of engines by state from each change to the next; ``end_s``: of the run, s since the start of the load."""
    columns = [list(column) for column in zip(*engines.rows)]
    counts_by_state = {name: counts for name, counts in zip(engines.columns[1:], columns[1:]) if any(counts)}
    starts_s = columns[0] if columns else []
    edges_s = [*starts_s, max([end_s, *starts_s])]
    time_s = [moment for moment in edges_s for _ in range(2)][1:-1]
    lines = [
        Line(name, time_s, [count for count in counts for _ in range(2)], colour, dashes=dashes)
        for (name, counts), colour, dashes in zip(counts_by_state.items(), _ENGINES, _DASHES)
    ]
    label = ", ".join(f"at most {max(counts)} {name}" for name, counts in counts_by_state.items())
    return Drawing("Engines over time", line_chart(lines, Axes(_SECONDS, "engines"), label), label)


def requests_over_time(times: RequestTimes) -> Drawing | None:
    """A line for each request from its arrival to its last token; None without a request that was answered."""
    count = len(times.sent_s)
    end_s = max((moment for moment in times.last_token_s if moment is not None), default=0.0)
    if not end_s:
        return None
    columns = (times.sent_s, times.scheduled_s, times.first_token_s, times.last_token_s)
    rows = Markup("").join(_request(index, moments) for index, moments in enumerate(zip(*columns)))
    svg = Markup(
        '<svg class="requests" viewBox="0 0 {:.6f} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(end_s, count, f"Times of {count} requests within {seconds(end_s)}", rows)
    ticks = Markup("").join(
        Markup('<span style="left:{:.2f}%">{} s</span>').format(100 * tick / end_s, tick_text(tick))
        for tick in round_ticks(0.0, end_s, _MOST_TICKS)
        if tick < 0.97 * end_s
    )
    listed = f"{count} of {times.of:,}, evenly spread, by arrival" if count < times.of else f"all {count}, by arrival"
    axis = Markup('<div class="ticks" aria-hidden="true">{}</div>').format(ticks)
    return Drawing("Requests over time", svg + axis + legend(PHASES), listed, is_wide=True)


def _request(index: int, moments: Sequence[float | None]) -> Markup:
    """The phases of a request that took time."""
    spans = list(zip(PHASES, itertools.pairwise(moments)))
    title = ", ".join(
        f"never {phase}" if start is None or end is None else f"{phase} {seconds(end - start)}"
        for phase, (start, end) in spans
    )
    bars = Markup("").join(
        Markup('<rect x="{:.6f}" y="{:.2f}" width="{:.6f}" height="0.84" style="fill:var(--part-{})"/>').format(
            start, index + 0.08, end - start, phase
        )
        for phase, (start, end) in spans
        if start is not None and end is not None and end > start
    )
    return Markup("<g><title>{}</title>{}</g>").format(title, bars)
