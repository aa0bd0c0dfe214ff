"""``presim report``: show a saved result."""

from __future__ import annotations

import os
from pathlib import Path

import click

from presim.cli.verb import Verb


@click.command("report", cls=Verb)
@click.argument("result", metavar="RESULT.json|DIR", type=click.Path(path_type=Path))
@click.option("--html", metavar="FILE", help="Write the report as one self-contained HTML page instead of printing it.")
@click.option("--modules", is_flag=True, help="Print the peak memory of each module, and what was alive at it.")
def command(result: Path, html: str | None, *, modules: bool) -> None:
    """Show a result of any verb as the verb printed it: a file that --json wrote, or the folder of a saved job.

    Results of the last version are read, too. A saved job is simulated on its own cluster.
    """
    from presim.errors import InputError
    from presim.studies.saved_results import show_result
    from presim.studies.saved_results.read_result import read
    from presim.system.files import check_writable, write_file

    if modules and html is not None:
        raise InputError("--modules prints a table, which --html holds already; leave one of them out")
    if html is not None:
        check_writable(html)
        if os.path.realpath(html) == os.path.realpath(result):
            raise InputError(f"{html} is the result itself; name another file for the page")
    content = read(result)
    if modules:
        show_result.write_modules(content)
    elif html is None:
        show_result.write(content)
    else:
        write_file(html, show_result.page(content).encode())
