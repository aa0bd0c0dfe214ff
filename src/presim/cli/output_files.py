"""Options that write a result: ``--json``, ``--html`` and ``--quiet``, the same in all verbs."""

from __future__ import annotations

import os
from typing import Any

import click

_EXAMPLES = {  # file names for error messages
    "--json": "result.json",
    "--html": "report.html",
    "--perfetto": "step.pftrace",
    "--memory-snapshot": "memory.pickle",
}


def file_name(context: click.Context, option: click.Parameter, word: str | None) -> str | None:
    """The value of an option that writes a file.

    A script or trace right after the option was not meant as its value.
    """
    if word is None or word == "-":
        return word
    from presim.capture.launchers.launch_command import is_command
    from presim.errors import InputError
    from presim.trace.job_store import JOB_FILE

    is_next = word.startswith("-") or word.endswith(".py") or ("=" not in word and is_command(word))
    if is_next or os.path.isfile(os.path.join(word, JOB_FILE)):
        name = option.opts[0]
        printing_hint = f"`{name} - {word} …` prints it, " if name == "--json" else ""
        saving_hint = f"`{name} {_EXAMPLES[name]} {word} …` saves it"
        raise InputError(f"{name} needs the name of an output file before {word}: {printing_hint}{saving_hint}")
    return word


def json_option(function: Any) -> Any:
    """``--json FILE``; without a file, as the last word or before another option, it prints, as ``--json -`` does."""
    option = click.option(
        "--json",
        "json_file",
        metavar="FILE",
        is_flag=False,
        flag_value="-",
        callback=file_name,
        help="Write the result as JSON; - is standard output.",
    )
    return option(function)


def html_option(function: Any) -> Any:
    """``--html FILE``."""
    option = click.option(
        "--html", metavar="FILE", callback=file_name, help="Write it as one self-contained HTML page."
    )
    return option(function)


def quiet_option(function: Any) -> Any:
    """``-q``."""
    return click.option("-q", "--quiet", is_flag=True, help="Print no report.")(function)
