"""Tables with one time per row, of a collective or an operator: columns read, derived and written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from presim.cost.price import Price
from presim.errors import reason_of
from presim.studies.validation.case_tables import read_table, write_table
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.error_summary import markdown, percent, quantile, signed

PREDICTED = ("predicted_time_us", "low_time_us", "high_time_us", "error", "provenance", "reason")


_TWICE = "a second row with the same cells"


@dataclasses.dataclass(frozen=True)
class Times:
    """One kind of table: its columns, the price of a row, and the grouping of errors."""

    row_name: str  # name of a row in messages, e.g. "a collective"
    required: tuple[str, ...]  # columns
    price_of: Callable[[Case, float], Price]  # arguments: row, measured time in us; may raise CannotBuildError
    title: str  # title of the report
    headings: tuple[str, ...]  # headings of the parts of ``group_of``
    group_of: Callable[[Mapping[str, str]], tuple[str, ...]]
    time_us_of: Callable[[Case], float | None] = lambda case: case.number("time_us")  # may raise CannotBuildError

    def read(self, path: Path) -> list[dict[str, str]]:
        """The rows of a table.

        Raises:
            InputError: the file is missing or is not a table, or a required column is missing.
        """
        return read_table(path, self.required, f"{self.row_name} has")

    def predict(self, rows: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
        """The rows with the columns `PREDICTED`. Impossible rows and rows without a price have a reason."""
        return list(self.predictions(rows))

    def predictions(self, rows: Iterable[Mapping[str, str]]) -> Iterator[dict[str, str]]:
        """The same, one after the other."""
        seen: set[tuple[tuple[str, str], ...]] = set()
        for row in rows:
            inputs = tuple((name, text) for name, text in row.items() if name not in PREDICTED)
            added = _without(_TWICE) if inputs in seen else self._cells(Case(row))
            seen.add(inputs)
            yield {**row, **added}

    def write(self, rows: Sequence[Mapping[str, str]], path: Path) -> None:
        """Write the table atomically.

        Raises:
            InputError: it cannot be written.
        """
        write_table(path, list(dict.fromkeys(name for row in rows for name in row)) or self._columns(), rows)

    def report(self, rows: Iterable[Mapping[str, str]]) -> str:
        """Errors of predicted rows by group, in Markdown."""
        groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
        for row in rows:
            if row["error"]:
                groups.setdefault(self.group_of(row), []).append(row)
        lines = [[*name, *_figures(groups[name])] for name in sorted(groups)]
        columns = [*self.headings, "sizes", "median error", "p90", "median sign", "in 80 %"]
        return f"# {self.title}, predicted beside measured\n\n" + markdown(columns, lines)

    def _cells(self, case: Case) -> dict[str, str]:
        try:
            measured = self.time_us_of(case)
            if measured is None:
                text = case.value("time_us")
                raise CannotBuildError(f"time_us = {text!r} is not a number" if text else "time_us is empty")
            if not 0 < measured < math.inf:
                raise CannotBuildError(f"time_us = {measured:g} is not a duration")
            price = self.price_of(case, measured)
        except Exception as error:  # noqa: BLE001  a bug in one row must not lose the others
            return _without(reason_of(error))
        predicted = price.duration_ns / 1e3
        return {
            "predicted_time_us": f"{predicted:.5g}",
            "low_time_us": f"{predicted * (1 - price.uncertainty):.5g}",
            "high_time_us": f"{predicted * (1 + price.uncertainty):.5g}",
            "error": f"{predicted / measured - 1:.5g}",
            "provenance": f"{price.origin.name.lower()} {price.estimator}",
            "reason": "",
        }

    def _columns(self) -> list[str]:
        return [*self.required, *PREDICTED]


def _figures(rows: Sequence[Mapping[str, str]]) -> list[str]:
    errors = [float(row["error"]) for row in rows]
    sizes = [abs(error) for error in errors]
    within_count = sum(float(row["low_time_us"]) <= _measured(row) <= float(row["high_time_us"]) for row in rows)
    middle = (percent(quantile(sizes, 0.5)), percent(quantile(sizes, 0.9)), signed(quantile(errors, 0.5)))
    return [str(len(errors)), *middle, percent(within_count / len(errors))]


def _measured(row: Mapping[str, str]) -> float:
    """Time of a row in us, given directly or by a bandwidth."""
    return float(row["predicted_time_us"]) / (1 + float(row["error"]))


def _without(reason: str) -> dict[str, str]:
    return {**dict.fromkeys(PREDICTED, ""), "reason": reason}
