"""Compares published runs with what a framework's trainer is predicted to take for their plans."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from presim.errors import PresimError
from presim.result import Result
from presim.studies.validation.cases import CannotBuildError, Case, read_cases

Row = Mapping[str, object]


def step_times(case: Case, result: Result) -> dict[str, object]:
    """The published and the predicted time of a step, and whether the interval holds the first.

    Raises:
        CannotBuildError: the result has no step.
    """
    low_s, high_s = result.step_time_low_s, result.step_time_high_s
    if result.step_time_s is None or low_s is None or high_s is None:
        raise CannotBuildError(f"no step time: {result.exit}")
    published_s = float(case.text("step_time_s"))
    return {
        "published_s": published_s,
        "predicted_s": result.step_time_s,
        "inside": low_s <= published_s <= high_s,
    }


def error_of(row: Row) -> float:
    """The relative error of a row's step time."""
    return float(str(row["predicted_s"])) / float(str(row["published_s"])) - 1


def compare(
    description: str | None,
    page_file: Path,
    predict: Callable[[Case], Row],
    page: Callable[[Mapping[str, Row]], str],
    framework: str,
) -> None:
    """Predict the rows of a table that the command line names, and write the page after each.

    Rows of other frameworks are left out without a word, unless ``--only`` names them.

    Raises:
        InputError: the table cannot be read.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", help="ids, separated by commas")
    options = parser.parse_args()
    wanted = set(filter(None, re.split(r"[, ]+", options.only)))
    rows_file = page_file.with_suffix(".json")
    rows = json.loads(rows_file.read_text()) if rows_file.exists() else {}
    for case in read_cases(options.table):
        name = case.text("id")
        if wanted and name not in wanted:
            continue
        try:
            rows[name] = predict(case)
        except PresimError as error:
            if wanted or case.text("framework").startswith(framework):
                print(f"{name}: {error}", file=sys.stderr)
            continue
        print(name, rows[name], flush=True)
        rows_file.write_text(json.dumps(rows, indent=1) + "\n")
        page_file.write_text(page(rows))
