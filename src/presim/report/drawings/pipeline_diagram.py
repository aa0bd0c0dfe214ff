"""The pipeline diagram in a page: a row for each stage's rank, with the passes of micro-batches in their order."""

from __future__ import annotations

from markupsafe import Markup

from presim.report.drawings.drawing import Drawing, legend
from presim.report.palette import css_classes
from presim.result.step_figures import Pass, RankPasses, StagePasses
from presim.units import percent, seconds

_LEAST_NUMBER = 0.012  # share of the width from which on a pass has room for its number
_MOST_RANKS = 32  # rows of a page
_OPTIMIZER = "optimizer"
_CAPTION = "A number counts the passes of its kind. Recomputation belongs to its backward pass."


def pipeline_diagram(passes: StagePasses) -> Drawing | None:
    """The diagram; None where ranks send each other no messages."""
    if not passes.ranks:
        return None
    rows = passes.ranks[:_MOST_RANKS]
    left_out = passes.left_out + len(passes.ranks) - len(rows)
    step = f"one step: {seconds((passes.to_ns - passes.from_ns) / 1e9)}"
    head = Markup('<div class="lane"><span></span><span>{}</span><span class="number">idle</span></div>').format(step)
    body = Markup("").join([head, *(_lane(passes, row) for row in rows), legend(passes.kinds)])
    notes = [f"{left_out} more simulated ranks are not drawn."] if left_out else []
    if not passes.is_even:
        notes.append("Ranks differ in their number of passes: numbers count passes of a rank, not micro-batches.")
    return Drawing("Pipeline", body, _CAPTION, tuple(notes), is_wide=True)


def _lane(passes: StagePasses, row: RankPasses) -> Markup:
    label = f"Rank {row.rank}: {len(row.passes)} passes, idle {percent(row.idle)} of the step"
    blocks = Markup("").join(_block(passes, entry) for entry in row.passes)
    return Markup(
        '<div class="lane"><span>rank {}</span><div class="passes" role="img" aria-label="{}">{}</div>'
        '<span class="number">{}</span></div>'
    ).format(row.rank, label, blocks, percent(row.idle))


def _block(passes: StagePasses, entry: Pass) -> Markup:
    start, end, kind, number = entry
    name, span = passes.kinds[kind], passes.to_ns - passes.from_ns
    first, last = max(start, passes.from_ns), min(end, passes.to_ns)
    share = (last - first) / span
    text = str(number) if share >= _LEAST_NUMBER and name != _OPTIMIZER else ""
    return Markup('<span class="{}" style="left:{:.3f}%;width:{:.3f}%" title="{}">{}</span>').format(
        css_classes([name])[0],
        100 * (first - passes.from_ns) / span,
        100 * share,
        f"{name} {number}: {seconds((end - start) / 1e9)}",
        text,
    )
