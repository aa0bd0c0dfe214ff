"""A case: one measured run, a row of a table.

Cells are text and are parsed when a recipe reads them. Errors name the missing or invalid cell; the output shows them
as the reason why a case was not built.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from presim.errors import InputError, PresimError
from presim.studies.validation.case_tables import read_table

REQUIRED = ("id", "gpu")  # required columns
_NUMBER = re.compile(
    r"(\d+(?:\.\d+)?) ?([kKM]?)(?: ?(?:tokens|samples|sequences|seqs|gpus))?(?: ?\(.*\))?", re.IGNORECASE
)
_NOTHING = ("n/a", "na", "none", "null", "-", "\u2014")  # texts that denote an empty cell
_THOUSANDS = {"": 1, "k": 2**10, "m": 2**20}
_FORMATS = (  # names of number formats in tables -> short names
    (r"\bbfloat16|\bbrain ?float(16)?", "bf16"),
    (r"\bfloat16|\bhalf(?! precision)", "fp16"),
    (r"\bfloat32|\bsingle precision", "fp32"),
    (r"float8|\be4m3\b|\be5m2\b", "fp8"),
    (r"float4|\be2m1\b", "fp4"),
)
_YES = re.compile(r"(true|yes|y|on|1|enabled|torch\.compile|per[ -]block|inductor)\b(?! ?(off|disabled|none))")
_RANK = re.compile(r"\brank (\d+)\b")


class CannotBuildError(PresimError):
    """The case cannot be built. The message is the reason in the output."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of a table. Its methods read cells."""

    row: Mapping[str, str]

    @property
    def id(self) -> str:
        """Identifier of the row, unique in a table."""
        return self.row["id"]

    def text(self, column: str) -> str:
        """The text of a cell; empty if the table lacks the column."""
        return (self.row.get(column) or "").strip()

    def value(self, column: str) -> str:
        """The text of a cell; empty also if it denotes an empty cell, such as "n/a"."""
        text = self.text(column)
        return "" if text.lower() in _NOTHING else text

    def number(self, column: str) -> float | None:
        """The cell as a number (``8192``, ``8,192``, ``8k`` for 8 x 1024); None if it is empty or not a number.

        A unit and a remark in brackets may follow the number.
        """
        match = _NUMBER.fullmatch(self.text(column).replace(",", ""))
        try:
            return float(match[1]) * _THOUSANDS[match[2].lower()] if match else float(self.text(column))
        except ValueError:
            return None

    def count(self, column: str, default: int | None = None) -> int:
        """The cell as a whole number.

        Raises:
            CannotBuildError: it is empty and there is no default, or it is not a whole number.
        """
        text = self.value(column)
        if not text and default is not None:
            return default
        if not text:
            raise CannotBuildError(f"{column} is empty")
        value = self.number(column)
        if value is None or value != int(value):
            raise CannotBuildError(f"{column} = {text!r} is not a whole number")
        return int(value)

    def is_on(self, column: str) -> bool:
        """Whether the cell denotes yes: ``True``, ``yes (per block)``, ``torch.compile`` and similar."""
        return _YES.match(self.text(column).lower()) is not None

    def precision(self) -> str:
        """The ``precision`` cell in lower case, with short names of formats: ``bf16``, ``fp16``, ``fp32``, ``fp8``."""
        text = self.text("precision").lower()
        for words, name in _FORMATS:
            text = re.sub(words, name, text)
        return text

    def measured_memory(self) -> tuple[float | None, str]:
        """Measured memory in GiB, and whether it is "allocated" or "reserved". Allocated memory takes precedence."""
        kind = "reserved" if "reserved" in self.text("peak_mem_kind") else "allocated"
        for column, meaning in (
            ("peak_mem_gib", kind),
            ("peak_allocated_gib", "allocated"),
            ("peak_reserved_gib", "reserved"),
        ):
            if (value := self.number(column)) is not None:
                return value, meaning
        return None, kind

    def measured_rank(self) -> int | None:
        """The rank with the measured memory; -1: the last rank, None: the fullest rank or unknown."""
        text = f"{self.text('peak_mem_kind')} {self.text('rank_or_stage')}"
        if "last rank" in text:
            return -1
        if "first pipeline stage" in text:
            return 0
        numbered = _RANK.search(text)
        return int(numbered[1]) if numbered else None


def read_cases(path: Path) -> list[Case]:
    """The rows of a table, in its order.

    Raises:
        InputError: the file is missing or is not a table, a required column or an id is missing, or an id is repeated.
    """
    rows = read_table(path, REQUIRED, "a case may have")
    _check_ids(path, rows)
    return [Case(row) for row in rows]


def _check_ids(path: Path, rows: list[dict[str, str]]) -> None:
    seen: dict[str, int] = {}
    for line, row in enumerate(rows, start=2):
        name = row["id"]
        if not name:
            raise InputError(f"{path}: row {line} has no id; give every case an id of its own")
        if name in seen:
            raise InputError(f"{path}: id {name!r} is in row {seen[name]} and again in row {line}; make them differ")
        seen[name] = line


def select(cases: list[Case], only: str | None, limit: int | None) -> list[Case]:
    """The first ``limit`` cases with an id, framework, model or GPU that matches the regular expression ``only``."""
    try:
        pattern = re.compile(only or "")
    except re.error as error:
        raise InputError(f"--only {only!r} is not a regular expression: {error}") from error
    columns = ("id", "framework", "model", "gpu")
    matching_cases = [case for case in cases if any(pattern.search(case.text(column)) for column in columns)]
    return matching_cases if limit is None else matching_cases[:limit]
