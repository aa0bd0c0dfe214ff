"""What an analysis of one's own adds to a result."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc


class Figure(msgspec.Struct, frozen=True):
    """A figure of an analysis."""

    name: Annotated[str, doc("What it is.")]
    value: Annotated[float, doc("Its value.")]
    unit: Annotated[str, doc("Its unit, such as s or bytes; empty: none.")] = ""


class Analysis(msgspec.Struct, frozen=True):
    """Figures, notes and a table of an analysis that a package registered."""

    name: Annotated[str, doc("Name of the analysis.")]
    figures: Annotated[list[Figure], doc("Its figures.")] = []
    notes: Annotated[list[str], doc("Sentences, which stand among the result's notes, too.")] = []
    columns: Annotated[list[str], doc("Names of the table's columns; empty: it has no table.")] = []
    rows: Annotated[list[list[str]], doc("The table's rows, a cell for each column.")] = []
