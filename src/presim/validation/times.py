"""Tables of single times, one a row: of a collective, of an operator. What is read, added and written for each."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from presim.cost.price import Price
from presim.errors import InputError
from presim.validation.cases import CannotBuildError, Case
from presim.validation.summary import markdown, percent, quantile, signed

PREDICTED = ("predicted_time_us", "low_time_us", "high_time_us", "error", "provenance", "reason")


def read_rows(path: Path, required: Sequence[str], what: str) -> list[dict[str, str]]:
    """The rows of a table of ``what``, e.g. "a collective".

    Raises:
        InputError: no such file, no table, or a required column is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            columns = reader.fieldnames or ()
            rows = [{name: value for name, value in row.items() if name is not None} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV table: {error}") from error
    if missing := [name for name in required if name not in columns]:
        raise InputError(f"{path} has no column {missing[0]!r}; docs/guide/validate.md lists what {what} has")
    return rows


def write_rows(rows: Sequence[Mapping[str, str]], path: Path, required: Sequence[str]) -> None:
    """The whole table or none."""
    columns = list(dict.fromkeys(name for row in rows for name in row)) or [*required, *PREDICTED]
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}; choose another file with --out") from error
    finally:
        temporary.unlink(missing_ok=True)


def predict(rows: Iterable[Mapping[str, str]], price_of: Callable[[Case], Price]) -> list[dict[str, str]]:
    """The rows with the columns of `PREDICTED` added; a reason where ``price_of`` cannot build the case."""
    return [{**row, **_cells(Case(row), price_of)} for row in rows]


def _cells(case: Case, price_of: Callable[[Case], Price]) -> dict[str, str]:
    try:
        measured = case.number("time_us")
        if not measured:
            raise CannotBuildError("time_us is not given")
        price = price_of(case)
    except CannotBuildError as error:
        return {**dict.fromkeys(PREDICTED, ""), "reason": str(error)}
    predicted = price.duration_ns / 1e3
    return {
        "predicted_time_us": f"{predicted:.5g}",
        "low_time_us": f"{predicted * (1 - price.uncertainty):.5g}",
        "high_time_us": f"{predicted * (1 + price.uncertainty):.5g}",
        "error": f"{predicted / measured - 1:.5g}",
        "provenance": f"{price.origin.name.lower()} {price.estimator}",
        "reason": "",
    }


def report(
    rows: Iterable[Mapping[str, str]],
    title: str,
    headings: Sequence[str],
    key: Callable[[Mapping[str, str]], tuple[str, ...]],
) -> str:
    """Errors by what ``key`` tells apart; ``headings`` name its parts."""
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        if row["error"]:
            groups.setdefault(key(row), []).append(row)
    lines = []
    for name in sorted(groups):
        errors = [float(row["error"]) for row in groups[name]]
        sizes = [abs(error) for error in errors]
        held = sum(float(r["low_time_us"]) <= float(r["time_us"]) <= float(r["high_time_us"]) for r in groups[name])
        figures = (percent(quantile(sizes, 0.5)), percent(quantile(sizes, 0.9)), signed(quantile(errors, 0.5)))
        lines.append([*name, str(len(errors)), *figures, percent(held / len(errors))])
    columns = [*headings, "sizes", "median error", "p90", "median sign", "in 80 %"]
    return f"# {title}, predicted beside measured\n\n" + markdown(columns, lines)
