"""Helpers shared by reports that are files: diffable JSON and self-contained pages."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from presim.report import palette
from presim.system import command_line

if TYPE_CHECKING:
    from jinja2 import Template

_SHARED = Path(__file__).parent  # of what several pages include


def json_text(answer: Any) -> bytes:
    """A value as JSON with sorted keys and a final newline."""
    return msgspec.json.format(msgspec.json.encode(answer, order="sorted"), indent=2) + b"\n"


def template(path: Path, **filters: Any) -> Template:
    """An HTML template. It escapes its values and raises an error for missing ones."""
    import importlib.metadata

    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # most reports are no pages

    environment = Environment(
        loader=FileSystemLoader([path.parent, _SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    environment.globals |= {
        "palette": palette.stylesheet(),
        "presim_version": importlib.metadata.version("presim"),
        "command_line": command_line.current(),
        "day": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",  # in UTC; without the time, pages of a day are alike
    }
    return environment.get_template(path.name)
