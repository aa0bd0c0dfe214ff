"""Self-contained pages made of key figures, the blocks of a report, and drawings."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from presim.report.blocks import Block
from presim.report.drawings.drawing import Drawing
from presim.report.rendering import template


@dataclasses.dataclass(frozen=True)
class KeyFigure:
    """A figure that stands first."""

    label: str
    value: str
    remark: str = ""


@dataclasses.dataclass(frozen=True)
class KeyFigures:
    """Figures side by side."""

    figures: tuple[KeyFigure, ...]


Section: TypeAlias = Block | Drawing | KeyFigures


def page(title: str, remark: str, sections: Sequence[Section]) -> str:
    """The page; narrow drawings that follow each other stand side by side."""
    rows = [(kind, list(run)) for kind, run in itertools.groupby(sections, lambda section: _kind_of(section))]
    return template(Path(__file__).with_name("sections.html.jinja")).render(title=title, remark=remark, rows=rows)


def _kind_of(section: Section) -> str:
    """How the template shows a section."""
    match section:
        case Drawing():
            return "wide" if section.is_wide else "drawings"
        case KeyFigures():
            return "cards"
    return str(section.__struct_config__.tag)
