"""``presim doctor``: check the installation and name the command that fixes each problem."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.report_options import Report, report_options
from presim.cli.verb import Verb


@click.command("doctor", cls=Verb)
@click.option("--deep", is_flag=True, help="Also start PyTorch on the emulated libraries and create a tensor.")
@click.option("--prepare", is_flag=True, help="First compile all loops for this CPU, so that no verb has to.")
@report_options
def command(deep: bool, prepare: bool, **options: Any) -> int:
    """Check the installation and name the command that fixes each problem.

    The exit code is 0 if `presim run` would work here, 1 if not.
    """
    from presim.capture.setup.doctor import CheckState, Examination, encode, examine, examine_deeply
    from presim.capture.setup.machine import inspect_machine

    report = Report.pop_from(options)
    if prepare:
        from presim.verbs.prepare import compile_loops

        compile_loops()
    checks = list(examine(inspect_machine()))
    works = all(check.state is not CheckState.MISSING for check in checks)
    if deep and works:
        checks.append(examine_deeply())
        works = checks[-1].state is not CheckState.MISSING
    content = Examination(works, checks)
    report.deliver("doctor", content, encode(content))
    return 0 if works else 1
