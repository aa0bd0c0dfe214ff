"""``presim report``: show a saved result."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from presim.cli.output_files import json_option
from presim.cli.verb import Verb


@click.command("report", cls=Verb)
@click.argument("result", metavar="RESULT.json|DIR", type=click.Path(path_type=Path))
@click.option("--html", metavar="FILE", help="Write the report as one self-contained HTML page instead of printing it.")
@json_option
@click.option("--modules", is_flag=True, help="Print the peak memory of each module, and what was alive at it.")
def command(result: Path, html: str | None, json_file: str | None, *, modules: bool) -> None:
    """Show a result of any verb as the verb printed it: a file that --json wrote, or the folder of a saved job.

    Results of the last version are read, too. A saved job is simulated on its own cluster.
    """
    from presim.errors import InputError
    from presim.studies.saved_results import show_result
    from presim.studies.saved_results.read_result import read
    from presim.system.files import check_writable, write_file

    if modules and (html or json_file):
        option = "--html" if html else "--json"
        raise InputError(f"--modules prints a table, which {option} holds already; leave one of them out")
    for path, content_name in ((html, "page"), (json_file, "copy")):
        if path not in (None, "-"):
            check_writable(str(path))
            if os.path.realpath(str(path)) == os.path.realpath(result):
                raise InputError(f"{path} is the result itself; name another file for the {content_name}")
    content = read(result)
    if json_file is not None:
        _write_json(show_result.as_json(content), json_file)
    if modules:
        show_result.write_modules(content)
    if html is not None:
        write_file(html, show_result.page(content).encode())
    if not (modules or html or json_file):
        show_result.write(content)


def _write_json(document: bytes, path: str) -> None:
    from presim.system.files import write_file

    if path == "-":
        sys.stdout.buffer.write(document)
    else:
        write_file(path, document)
