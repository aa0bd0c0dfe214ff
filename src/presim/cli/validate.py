"""``presim validate``: compare predictions with measured runs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim.cli.numbers import number
from presim.cli.report_options import Report, report_options
from presim.cli.verb import Verb
from presim.system.interrupts import caught
from presim.units import quantities

if TYPE_CHECKING:
    from presim.engine.simulation_options import Options
    from presim.studies.validation.cases import Case
    from presim.studies.validation.results import ResultTable
    from presim.studies.validation.runs import Providers

Row = Mapping[str, str]


@click.command("validate", cls=Verb)
@click.argument("table", metavar="[CASES.csv]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file; default: CASES.predicted.csv in the working directory.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a Markdown summary of all rows in --out.",
)
@click.option(
    "--jobs", metavar="N", type=number(quantities.PROCESSES), default=1, show_default=True, help="Parallel cases."
)
@click.option("--limit", metavar="N", type=number(quantities.CASES), help="Run only the first N cases.")
@click.option("--only", metavar="REGEX", help="Run only cases whose id, framework, model or GPU matches.")
@click.option(
    "--recipes",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of recipes for cases without a command; default: those of the installed planners.",
)
@click.option(
    "--captures",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Save captures in this folder and reuse them, even those of another presim version.",
)
@click.option("--no-contention", is_flag=True, help="Do not slow down kernels and collectives that overlap.")
@click.option(
    "--kind",
    type=click.Choice(["runs", "collectives", "operators", "serving"]),
    default="runs",
    show_default=True,
    help="Kind of row: a training run, a serving run, or one measured collective or operator.",
)
@click.option(
    "--again",
    "repeats_done",
    is_flag=True,
    help="Repeat predictions that --out already has, e.g. after prices changed.",
)
@click.option(
    "--oracle",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="In place of CASES.csv: split the error of predicting this profile of a real run; one option for each rank.",
)
@click.option(
    "--job", metavar="DIR", type=click.Path(path_type=Path), help="With --oracle: a saved capture of that run."
)
@click.option("--gpu", metavar="ID", help="With --oracle: the GPU that it ran on, where the profile does not say.")
@report_options
def command(
    table: Path | None,
    out: Path | None,
    report: Path | None,
    jobs: int,
    limit: int | None,
    only: str | None,
    recipes: Path | None,
    captures: Path | None,
    no_contention: bool,
    kind: str,
    repeats_done: bool,
    oracle: tuple[Path, ...],
    job: Path | None,
    gpu: str | None,
    **options: Any,
) -> int:
    """Compare predictions with measured runs.

    CASES.csv has one run per row; docs/reference/validation-tables.md lists the columns. A case names its command or a
    saved job; installed planners can build other cases, such as published runs, from recipes. The output has the
    input's columns and the prediction, or the reason why there is none. It is written after each case, so an
    interrupted run continues where it stopped. With --oracle, measured times of a recording replace predicted ones in
    turn, which splits the error.
    """
    delivery = Report.pop_from(options)
    _check_subject(table, oracle, job, gpu)
    if table is None:
        return _oracle(oracle, job, gpu, report, delivery)
    out = out or Path(f"{table.stem}.predicted.csv")
    _check_writable(table, out, report, captures)
    if kind == "serving":
        return _serving(table, out, report, delivery, only, limit, repeats_done)
    if kind != "runs":
        return _single_times(kind, table, out, report, delivery)
    from presim.engine.simulation_options import Options
    from presim.studies.validation.cases import read_cases, select
    from presim.studies.validation.providers import open_providers
    from presim.studies.validation.results import ResultTable
    from presim.studies.validation.runs import Settings

    cases = read_cases(table)
    _check_recipes(recipes)
    results = ResultTable(out, cases)
    pending_cases = [case for case in select(cases, only, limit) if repeats_done or not results.is_done(case)]
    with open_providers(Settings(recipes, captures)) as providers:
        partial = _solve(pending_cases, providers, jobs, Options(contention=not no_contention), results, delivery.quiet)
        _finish(results, report, delivery, providers.sources_of_tests, partial)
    return 0


def _check_subject(table: Path | None, oracle: tuple[Path, ...], job: Path | None, gpu: str | None) -> None:
    from presim.errors import InputError

    if (table is None) == (not oracle):
        raise InputError("presim validate takes either a table of cases, CASES.csv, or a recording, --oracle FILE")
    if table is not None and (job or gpu):
        raise InputError("--job and --gpu describe a recording: name it with --oracle FILE in place of CASES.csv")


def _oracle(files: tuple[Path, ...], job: Path | None, gpu: str | None, report: Path | None, delivery: Report) -> int:
    import dataclasses

    from presim.report import line_report
    from presim.sources.source import SourceRequest
    from presim.studies.validation.oracle import render, split_error
    from presim.system.files import check_writable, write_file

    if report is not None:
        check_writable(report)
    split = split_error(files, SourceRequest(gpu=gpu), job)
    text = render(split)
    if report is not None:
        write_file(report, f"{text}\n".encode())
    content = line_report.line_report("validate", text.splitlines(), dataclasses.asdict(split))
    delivery.deliver("lines", content, line_report.encode(content))
    return 0


def _check_recipes(folder: Path | None) -> None:
    from presim.errors import InputError

    if folder is not None and not folder.is_dir():
        raise InputError(
            f"there is no folder {folder} of recipes; name the checkout's validation/recipes with --recipes"
        )


def _solve(
    cases: list[Case], providers: Providers, jobs: int, options: Options, results: ResultTable, quiet: bool
) -> bool:
    """Predict the selected cases; writes the table after each. Returns whether a signal ended it before the last."""
    from presim.cli.progress import progress
    from presim.studies.validation.case_workers import solve_all

    with caught() as stop, progress(quiet) as say:
        for number, (case, prediction) in enumerate(solve_all(cases, providers, jobs, options), start=1):
            results.add(case, prediction)
            say(f"{number} of {len(cases)}: {case.id}")
    stop.unless(results.rows())
    return stop.is_partial


def _finish(results: ResultTable, report: Path | None, delivery: Report, tests: Collection[str], partial: bool) -> None:
    """Write the summary of the whole table and print a line about it; ``tests``: sources of test cases."""
    from presim.studies.validation import printed
    from presim.studies.validation.error_summary import write_summary

    rows = results.rows()
    if report and not partial:
        write_summary(rows, report, tests)
    _deliver(delivery, results.path, rows, printed.of_runs(results.path, rows, _note(partial)), partial)


def _deliver(delivery: Report, path: Path, rows: Sequence[Row], text: str, partial: bool) -> None:
    """Write the table as JSON and as a page, and print the lines about it."""
    import dataclasses
    import json

    content = {"path": str(path), "rows": [dict(row) for row in rows], "schema": "presim-validation/1"}
    content |= {"partial": _note(partial).removeprefix("; ")} if partial else {}
    dataclasses.replace(delivery, quiet=True).deliver("validation", content, json.dumps(content, indent=1))
    if not delivery.quiet and delivery.json_file != "-":
        click.echo(text)


def _note(partial: bool) -> str:
    return "; partial: the rows behind are not predicted, and --report is not written" if partial else ""


def _check_writable(table: Path, out: Path, report: Path | None, captures: Path | None) -> None:
    """Raise early if a file cannot be written or would overwrite another one."""
    from presim.errors import InputError
    from presim.system.files import check_writable
    from presim.trace import job_store

    named = [os.path.realpath(path) for path in (table, out, report) if path is not None]
    if len(set(named)) < len(named):
        raise InputError("CASES.csv, --out and --report must be different files: give each its own")
    for path in (out, report):
        if path is not None:
            check_writable(path)
    if captures is not None:
        job_store.check_writable(captures)


def _single_times(kind: str, table: Path, out: Path, report: Path | None, delivery: Report) -> int:
    from presim.studies.validation import printed
    from presim.studies.validation.published_collectives import COLLECTIVES
    from presim.studies.validation.published_operators import OPERATORS
    from presim.system.files import write_file

    times = COLLECTIVES if kind == "collectives" else OPERATORS
    rows: list[dict[str, str]] = []
    with caught() as stop:
        rows.extend(times.predictions(times.read(table)))  # an interrupt keeps those before it
    stop.unless(rows)
    times.write(rows, out)
    if report and not stop.is_partial:
        write_file(report, times.report(rows).encode())
    _deliver(delivery, out, rows, printed.of_times(out, rows, _note(stop.is_partial)), stop.is_partial)
    return 0


def _serving(
    table: Path, out: Path, report: Path | None, delivery: Report, only: str | None, limit: int | None, repeats: bool
) -> int:
    import re

    from presim.cli.progress import progress
    from presim.studies.validation import printed, serving, serving_errors
    from presim.system.files import write_file

    rows = serving.read(table)
    results = serving.ServingTable(out, rows)
    if only:
        names = ("id", "framework", "model", "gpu", "mode")
        rows = [row for row in rows if any(re.search(only, row.get(name, "")) for name in names)]
    pending_rows = [row for row in rows[:limit] if repeats or not results.is_done(row)]
    with caught() as stop, progress(delivery.quiet) as say:
        for number, row in enumerate(serving.predictions(pending_rows), start=1):
            results.add(row)
            say(f"{number} of {len(pending_rows)}: {row.get('id', '')}")
    stop.unless(results.rows())
    rows = results.rows()
    if report and not stop.is_partial:
        write_file(report, serving_errors.report(rows).encode())
    _deliver(delivery, out, rows, printed.of_serving(out, rows, _note(stop.is_partial)), stop.is_partial)
    return 0
