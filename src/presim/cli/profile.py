"""``presim profile``: measure prices on this machine's GPU, or import published tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.report_options import Report, report_options
from presim.cli.verb import Verb
from presim.system.interrupts import noted
from presim.units import quantities


@click.command("profile", cls=Verb)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of the table.")
@click.option(
    "--trace", type=click.Path(path_type=Path), metavar="DIR", help="Measure the operators of this saved trace."
)
@click.option(
    "--seconds",
    type=number(quantities.MEASURING_SECONDS),
    default=600.0,
    metavar="S",
    show_default=True,
    help="Time budget; the next call continues.",
)
@click.option(
    "--import",
    "imports",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DATA",
    help="Import a profiler's trace or a public dataset instead of measuring. Repeatable.",
)
@report_options
def command(out: Path, trace: Path | None, seconds: float, imports: tuple[Path, ...], **options: Any) -> None:
    """Measure operators on this machine's GPU and store their times in a table for --prices.

    Without --trace a standard sweep is measured, in minutes: products (also FP8 and grouped), attention, elementwise
    work, norms, softmax, reductions, optimizers, look-ups and copies. One GPU is enough to price a job for a thousand.
    Operators that the table already has are skipped, so repeat a call that was stopped.

    With --import no GPU is needed: rows come from traces of PyTorch's profiler (record_shapes=True) or from datasets
    that `presim fit` reads, and are added to the tables in DIR. DATA may be `aiconfigurator`, the package from PyPI.
    """
    from presim.report import line_report

    report = Report.pop_from(options)
    lines, figures = _import_prices(imports, out) if imports else _measure(out, trace, seconds, report.quiet)
    content = line_report.line_report("profile", lines, figures)
    report.deliver("lines", content, line_report.encode(content))


def _measure(out: Path, trace: Path | None, seconds: float, quiet: bool) -> tuple[list[str], dict[str, Any]]:
    import dataclasses

    from presim.cli.progress import progress
    from presim.cost.profile.run_profile import describe_outcome, local_gpu, profile
    from presim.cost.profile.sweep import standard_sweep
    from presim.trace import job_store

    signatures = list(standard_sweep())
    if trace is not None:
        signatures = [
            signature for rank_trace in job_store.load(trace).traces.values() for signature in rank_trace.signatures
        ]
    with progress(quiet) as say, noted("nothing is written, because nothing was measured"):
        outcome = profile(signatures, out, seconds, local_gpu(), say)
    rejected = [f"  not measured, {count}: {reason}" for reason, count in outcome.rejected.items()]
    return [describe_outcome(outcome), *rejected], dataclasses.asdict(outcome)


def _import_prices(imports: tuple[Path, ...], out: Path) -> tuple[list[str], dict[str, Any]]:
    import dataclasses

    from presim.cost.measured.importers.find import describe_import, import_tables

    with noted("nothing is written, because no DATA was read to its end"):
        outcome = import_tables(imports, out, keeps_finished=True)
    return describe_import(outcome), dataclasses.asdict(outcome)
