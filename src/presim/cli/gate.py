"""``presim gate``: budgets for step time and memory in a repository's CI."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from presim.process.interrupts import noted


@click.command("gate")
@click.argument("budgets", metavar="BUDGETS.toml", type=click.Path(path_type=Path))
@click.option("--baseline", type=click.Path(path_type=Path), metavar="DIR", help="Results of the base branch.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the results, as a baseline.")
@click.option("--json", "json_file", metavar="FILE", help="Write the verdicts as JSON; - is standard output.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Write a table for a pull request.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write JUnit XML.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report.")
def command(
    budgets: Path,
    baseline: Path | None,
    keep: Path | None,
    json_file: str | None,
    markdown_file: str | None,
    junit_file: str | None,
    quiet: bool,
) -> int:
    """Predict the jobs in BUDGETS.toml and check them against their limits.

    Commands run in the folder of the file. The exit code is 7 if a job exceeds its budget.
    """
    from presim.cli import partial_results
    from presim.cli.progress import progress
    from presim.errors import ExitCode
    from presim.files import check_writable, write_file
    from presim.studies.gate import text as report
    from presim.studies.gate.budgets import read
    from presim.studies.gate.jobs import gate

    for path in (json_file, markdown_file, junit_file):
        if path is not None and path != "-":
            check_writable(path)
    jobs = read(budgets)
    with progress(quiet) as say:
        folder = Path(os.path.realpath(budgets)).parent
        with noted("nothing is written, because no job was predicted"):
            answer = gate(jobs, folder, baseline=baseline, keep=keep, progress=say, keeps_finished=True)
    if markdown_file:
        write_file(markdown_file, report.markdown(answer).encode())
    if junit_file:
        write_file(junit_file, report.junit(answer))
    if json_file == "-":
        sys.stdout.buffer.write(report.encode(answer))
    elif json_file:
        write_file(json_file, report.encode(answer))
    if not quiet and json_file != "-":
        if answer.partial:
            partial_results.write("gate", answer)
        else:
            report.write(answer)
    return ExitCode.STANDS if answer.passed else ExitCode.OVER_BUDGET
