"""``presim compare``: differences between results, part by part."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.verb import Verb
from presim.system.interrupts import noted

_NOTHING = "nothing is compared, because fewer than two results were there"


@click.command("compare", cls=Verb)
@click.argument("jobs", nargs=-1, required=True, metavar="A [B...]")
@click.option(
    "--with",
    "variants",
    multiple=True,
    metavar="OPTIONS",
    help="Also simulate A with other options of `presim simulate`, quoted: --with '--gpu b200'; repeatable.",
)
@json_option
@html_option
@quiet_option
def command(
    jobs: tuple[str, ...], variants: tuple[str, ...], json_file: str | None, html: str | None, quiet: bool
) -> None:
    """Compare A, the baseline, with B and others.

    Each is a folder that `presim run --save` or `presim compose --save` wrote, or a result that --json wrote. `--with`
    compares a saved job with itself on other hardware or under other assumptions.
    """
    from presim.cli import partial_results
    from presim.report import comparison as report
    from presim.studies.saved_jobs import compare_jobs
    from presim.system.files import check_writable

    for path in (json_file, html):
        if path is not None and path != "-":
            check_writable(path)
    option_sets = [(words, _options(jobs[0], words)) for words in variants]
    with noted(_NOTHING):
        compared = compare_jobs(jobs, option_sets, keeps_finished=True)
    if html and compared.partial:
        partial_results.write_page("comparison", compared, html)
    elif html:
        report.write_page(compared, html)
    if json_file == "-":
        sys.stdout.buffer.write(report.encode(compared))
    elif json_file:
        from presim.system.files import write_file

        write_file(json_file, report.encode(compared))
    if not quiet and json_file != "-":
        if compared.partial:
            partial_results.write("comparison", compared)
        else:
            report.write(compared)


def _options(job: str, words: str) -> Any:
    """Parse a string of `presim simulate` options."""
    import dataclasses

    from click.core import ParameterSource

    from presim.cli import simulate
    from presim.errors import InputError
    from presim.evaluation.options import EvaluationOptions

    try:
        context = simulate.command.make_context(
            "simulate", [job, *shlex.split(words)], click.get_current_context().parent
        )
    except (click.ClickException, ValueError) as error:
        reason = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise InputError(
            f"--with {words!r} cannot be used: {reason.rstrip('.')}; see `presim simulate --help`"
        ) from error
    supported = {field.name for field in dataclasses.fields(EvaluationOptions)}
    named = (name for name in context.params if context.get_parameter_source(name) == ParameterSource.COMMANDLINE)
    if unsupported := [name for name in named if name not in {*supported, "directory"}]:
        raise InputError(
            f"--with {words!r} has options that a comparison does not support ({', '.join(unsupported)}); "
            "use them with `presim simulate`"
        )
    return EvaluationOptions(**{name: value for name, value in context.params.items() if name in supported})
