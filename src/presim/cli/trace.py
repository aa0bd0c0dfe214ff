"""``presim trace``: inspect a saved trace."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.report_options import Report, report_options
from presim.cli.verb import Verb
from presim.units import quantities


@click.command("trace", cls=Verb)
@click.argument("directory", metavar="DIR")
@click.option("--rank", type=number(quantities.RANK), metavar="R", help="Captured rank to show. Default: the lowest.")
@click.option("--entries", metavar="A:B", help="Also list entries A up to, not including, B.")
@report_options
def command(directory: str, rank: int | None, entries: str | None, **options: Any) -> None:
    """Inspect the trace in DIR: counts, signatures, streams, collectives, and single entries."""
    from presim.report import trace_view
    from presim.trace import job_store

    report = Report.pop_from(options)
    entry_range = _range(entries)
    job = job_store.load(directory, ranks=None if rank is None else [rank])
    trace = job.traces[min(job.traces)]
    if entry_range is not None and entry_range.start >= len(trace):
        raise click.BadParameter(f"{entries!r} begins after the last of {len(trace)} entries", param_hint="--entries")
    content = trace_view.view(trace, entry_range)
    report.deliver("trace-view", content, trace_view.encode(content))


def _range(text: str | None) -> slice | None:
    """Parse ``A:B``; either end may be missing."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError
        entry_range = slice(int(first or 0), int(last) if last else None)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a range such as 0:20", param_hint="--entries") from None
    if entry_range.start < 0 or (entry_range.stop is not None and entry_range.stop < entry_range.start):
        raise click.BadParameter(f"{text!r} is empty: the second number must be larger", param_hint="--entries")
    return entry_range
