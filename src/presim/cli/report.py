"""``presim report``: show a saved result."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command("report")
@click.argument("result", metavar="RESULT.json", type=click.Path(path_type=Path))
@click.option("--html", metavar="FILE", help="Write the report as one self-contained HTML page instead of printing it.")
def command(result: Path, html: str | None) -> None:
    """Show a result that `presim run --json` or `presim simulate --json` wrote."""
    from presim.errors import InputError
    from presim.files import check_writable
    from presim.report import json

    if html is not None:
        check_writable(html)
        if os.path.realpath(html) == os.path.realpath(result):
            raise InputError(f"{html} is the result itself; name another file for the page")
    kept = json.read(result)
    if html is None:
        from presim.report import terminal

        terminal.write(kept)
    else:
        from presim.report import html as page

        page.write(kept, html)
