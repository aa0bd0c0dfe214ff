"""The output table: the input's columns and predictions, written after every case.

An interrupted run continues: a case is done if the table has its row with the same input cells. Cases that failed (a
full disk, a time limit) are tried again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from presim.errors import InputError
from presim.studies.validation.case_tables import write_table
from presim.studies.validation.cases import Case
from presim.studies.validation.plausibility import impossible
from presim.system.files import FormatError, decode_csv, read_text

RUN_FAILED = "the run failed"
_TRY_AGAIN = (RUN_FAILED, "the recipe failed", "the command failed")  # another attempt may succeed
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
    """The prediction of a case; None: unknown."""

    step_time_s: float | None = None
    peak_mem_gib: float | None = None  # allocated or reserved, as measured
    low_step_time_s: float | None = None
    high_step_time_s: float | None = None
    outcome: str = ""  # ok, out_of_memory, or empty if nothing was run
    provenance: str = ""
    seconds: float = 0.0  # wall time of the prediction
    reason: str = ""  # reason for a missing prediction
    least_step_s: float = 0.0  # minimum time of the step's arithmetic on this GPU
    memory_bytes: float = math.inf  # memory of one GPU

    def cells(self, case: Case) -> dict[str, str]:
        """The output columns. Impossible measurements have no errors."""
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
    """Relative error; 0.1 means 10 % more than measured."""
    return predicted / measured - 1 if predicted and measured else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"


class ResultTable:
    """Rows by id. The table on disk is always complete: it is replaced atomically after each case."""

    def __init__(self, path: Path, cases: Sequence[Case]) -> None:
        self.path = path
        self._order = {case.id: index for index, case in enumerate(cases)}
        self._columns = [*(name for name in _columns_of(cases) if name not in PREDICTED), *PREDICTED]
        self._rows = _read(path) if path.exists() else {}

    def is_done(self, case: Case) -> bool:
        """Whether the table has this case with the same cells, and its run did not fail."""
        row = self._rows.get(case.id)
        if row is not None and row["reason"].startswith(_TRY_AGAIN):
            return False
        inputs = {key: value for key, value in case.row.items() if key not in PREDICTED}
        return row is not None and all(row.get(key, "") == (value or "") for key, value in inputs.items())

    def add(self, case: Case, prediction: Prediction) -> None:
        """Add a case and write the table to disk."""
        self._rows[case.id] = {**case.row, **prediction.cells(case)}
        self._write()

    def rows(self) -> list[Mapping[str, str]]:
        """All rows in the order of the input, then rows that the input lacks."""
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
        rows = list(decode_csv(read_text(path, "name another file with --out")))
    except FormatError as error:
        raise InputError(f"{path} cannot be read: {error}; name another file with --out") from error
    if rows and not {"id", *PREDICTED} <= set(rows[0]):
        raise InputError(f"{path} is not an output of `presim validate` and would be overwritten; choose another --out")
    return {row["id"]: row for row in rows}
