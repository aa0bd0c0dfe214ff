"""``presim report``: show a saved result."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("report")
@click.argument("result", metavar="RESULT.json|DIR", type=click.Path(path_type=Path))
@click.option("--html", metavar="FILE", help="Write the report as one self-contained HTML page instead of printing it.")
def command(result: Path, html: str | None) -> None:
    """Show a result of any verb as the verb printed it: a file that --json wrote, or the folder of a saved job.

    Results of the last version are read, too. A saved job is simulated on its own cluster.
    """
    from presim.errors import InputError
    from presim.files import check_writable, write_file
    from presim.view.saved import show
    from presim.view.saved.read import read

    if html is not None:
        check_writable(html)
        if os.path.realpath(html) == os.path.realpath(result):
            raise InputError(f"{html} is the result itself; name another file for the page")
    content = read(result)
    if html is None:
        show.write(content)
    else:
        write_file(html, show.page(content).encode())
