"""A drawing in a page: a heading, a sentence, and markup that needs only the style sheet of `drawings.css`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from markupsafe import Markup

from presim.report.palette import css_classes


@dataclasses.dataclass(frozen=True)
class Drawing:
    """Markup whose texts are escaped."""

    name: str
    markup: Markup
    caption: str = ""
    notes: tuple[str, ...] = ()
    is_wide: bool = False  # has all of the page's width


def legend(names: Sequence[str]) -> Markup:
    """The colours of parts of a drawing."""
    entries = (
        Markup('<li><i class="{}"></i>{}</li>').format(css_class, name)
        for name, css_class in zip(names, css_classes(names))
    )
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))
