"""The output table: the input's columns and the predictions, written after every case.

A run that was stopped goes on where it was: a case is done when the table holds its row with the same input cells.
One whose run failed (a full disk, a time limit) is tried again.
"""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from presim.errors import InputError
from presim.validation.cases import Case
from presim.validation.plausibility import impossible
from presim.validation.tables import write_table

RUN_FAILED = "the run failed"
_TRY_AGAIN = (RUN_FAILED, "the recipe failed", "the command failed")  # reasons that another attempt may mend
PREDICTED = (
    "predicted_step_time_s",
    "predicted_peak_mem_gib",
    "low_step_time_s",
    "high_step_time_s",
    "error",
    "memory_error",
    "outcome",
    "provenance",
    "seconds",
    "reason",
)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What presim says about a case; None: not known."""

    step_time_s: float | None = None
    peak_mem_gib: float | None = None  # of the kind that was measured
    low_step_time_s: float | None = None
    high_step_time_s: float | None = None
    outcome: str = ""  # ok, out_of_memory, or empty where nothing was run
    provenance: str = ""
    seconds: float = 0.0  # of wall time
    reason: str = ""  # why there is no prediction, in words
    least_step_s: float = 0.0  # no GPU of this kind does the step's arithmetic in less
    memory_bytes: float = math.inf  # of one GPU

    def cells(self, case: Case) -> dict[str, str]:
        """The columns that the output adds; of measured figures that cannot be true no errors."""
        wrong = impossible(case, self.least_step_s, self.memory_bytes)
        step = None if "step_time_s" in wrong else case.number("step_time_s")
        memory = None if "memory" in wrong else case.measured_memory()[0]
        return {
            "predicted_step_time_s": _number(self.step_time_s),
            "predicted_peak_mem_gib": _number(self.peak_mem_gib),
            "low_step_time_s": _number(self.low_step_time_s),
            "high_step_time_s": _number(self.high_step_time_s),
            "error": _number(_error(self.step_time_s, step)),
            "memory_error": _number(_error(self.peak_mem_gib, memory)),
            "outcome": self.outcome,
            "provenance": self.provenance,
            "seconds": f"{self.seconds:.1f}",
            "reason": "; ".join(filter(None, (self.reason, *(f"not compared: {why}" for why in wrong.values())))),
        }


def _error(predicted: float | None, measured: float | None) -> float | None:
    """Relative: 0.1 means 10 % more than was measured."""
    return predicted / measured - 1 if predicted and measured else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


class ResultTable:
    """Rows by id. On disk there is always a whole table: the one before a case, or the one after it."""

    def __init__(self, path: Path, cases: Sequence[Case]) -> None:
        self.path = path
        self._order = {case.id: place for place, case in enumerate(cases)}
        self._columns = [*(name for name in _columns_of(cases) if name not in PREDICTED), *PREDICTED]
        self._rows = _read(path) if path.exists() else {}

    def done(self, case: Case) -> bool:
        """The table has this case as it is now, and not because a run of it failed."""
        row = self._rows.get(case.id)
        if row is not None and row["reason"].startswith(_TRY_AGAIN):
            return False
        inputs = {key: value for key, value in case.row.items() if key not in PREDICTED}
        return row is not None and all(row.get(key, "") == (value or "") for key, value in inputs.items())

    def add(self, case: Case, prediction: Prediction) -> None:
        """Put the case into the table and the table onto the disk."""
        self._rows[case.id] = {**case.row, **prediction.cells(case)}
        self._write()

    def rows(self) -> list[Mapping[str, str]]:
        """All rows, in the order of the input; rows that the input does not have come last."""
        last = len(self._order)
        return sorted(self._rows.values(), key=lambda row: (self._order.get(row["id"], last), row["id"]))

    def _write(self) -> None:
        extra = [name for row in self._rows.values() for name in row if name not in self._columns]
        columns = [*dict.fromkeys([*self._columns, *extra])]
        write_table(self.path, columns, self.rows())


def _columns_of(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(name for case in cases for name in case.row))


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}; name another file with --out") from error
    if rows and not {"id", *PREDICTED} <= set(rows[0]):
        raise InputError(f"{path} is no output of `presim validate`; it would be overwritten: name another with --out")
    return {row["id"]: row for row in rows}
