"""``presim gate``: budgets for step time and memory in a repository's CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from presim.cli.report_options import Report, report_options
from presim.cli.verb import Verb
from presim.system.interrupts import noted


@click.command("gate", cls=Verb)
@click.argument("budgets", metavar="BUDGETS.toml", type=click.Path(path_type=Path))
@click.option("--baseline", type=click.Path(path_type=Path), metavar="DIR", help="Results of the base branch.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the results, as a baseline.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Write a table for a pull request.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write JUnit XML.")
@report_options
def command(
    budgets: Path,
    baseline: Path | None,
    keep: Path | None,
    markdown_file: str | None,
    junit_file: str | None,
    **options: Any,
) -> int:
    """Predict the jobs in BUDGETS.toml and check them against their limits.

    Commands run in the folder of the file. The exit code is 7 if a job exceeds its budget.
    """
    from presim.cli.progress import progress
    from presim.errors import ExitCode
    from presim.studies.gate import text as report
    from presim.studies.gate.budget_files import read
    from presim.studies.gate.jobs import gate
    from presim.studies.saved_results.read_result import INTERRUPTED
    from presim.system.files import check_writable, write_file

    delivery = Report.pop_from(options)
    for path in (markdown_file, junit_file):
        if path is not None:
            check_writable(path)
    jobs = read(budgets)
    with progress(delivery.quiet) as say:
        folder = Path(os.path.realpath(budgets)).parent
        with noted("nothing is written, because no job was predicted"):
            answer = gate(jobs, folder, baseline=baseline, keep=keep, progress=say, keeps_finished=True)
    if markdown_file:
        write_file(markdown_file, report.markdown(answer).encode())
    if junit_file:
        write_file(junit_file, report.junit(answer))
    delivery.deliver("gate", answer, report.encode(answer), INTERRUPTED if answer.partial else "")
    return ExitCode.STANDS if answer.passed else ExitCode.OVER_BUDGET
