"""Sums up outputs of ``presim validate`` as one page: ``python validation/train.py OUT.csv... >PAGE.md``.

What is known about the misses stands in ``results/train-notes.md`` and is put in front of the tables.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from presim.validation.summary import summary

_NOTES = Path(__file__).parent / "results" / "train-notes.md"


def main() -> None:
    """The rows of all tables, a later one in the place of an earlier one with the same id."""
    rows: dict[str, dict[str, str]] = {}
    for name in sys.argv[1:]:
        with Path(name).open(newline="") as file:
            rows.update({row["id"]: row for row in csv.DictReader(file, restval="")})
    title, tables = summary(list(rows.values())).split("\n", 1)
    sys.stdout.write(f"{title}\n\n{_NOTES.read_text()}\n{tables}")


if __name__ == "__main__":
    main()
