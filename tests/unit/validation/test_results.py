"""The output table: its columns, and that a run which was stopped goes on."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from presim.errors import InputError
from presim.studies.validation.cases import Case
from presim.studies.validation.results import PREDICTED, Prediction, ResultTable

CASES = [Case({"id": name, "framework": "f", "gpu": "g", "step_time_s": "2", "peak_mem_gib": "10"}) for name in "abc"]
GOOD = Prediction(2.2, 9.0, 2.0, 2.4, "ok", "analytic 100%", 1.25)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_output_has_the_inputs_columns_then_the_predictions(tmp_path: Path) -> None:
    table = ResultTable(tmp_path / "out.csv", CASES)
    table.add(CASES[0], GOOD)
    (row,) = rows(table.path)
    assert list(row) == ["id", "framework", "gpu", "step_time_s", "peak_mem_gib", *PREDICTED]
    assert (row["error"], row["memory_error"], row["seconds"]) == ("0.1", "-0.1", "1.2")


def test_a_case_without_prediction_has_a_reason_and_empty_numbers(tmp_path: Path) -> None:
    table = ResultTable(tmp_path / "out.csv", CASES)
    table.add(CASES[0], Prediction(reason="n_layers is empty"))
    (row,) = rows(table.path)
    assert (row["reason"], row["error"], row["predicted_step_time_s"]) == ("n_layers is empty", "", "")


@pytest.mark.parametrize(
    ("cells", "limits", "reason"),
    [
        ({"step_time_s": "-2"}, {}, "not compared: step_time_s = '-2' is not a duration in seconds"),
        ({"step_time_s": "fast"}, {}, "not compared: step_time_s = 'fast' is not a duration in seconds"),
        (
            {"step_time_s": "2"},
            {"least_step_s": 3.0},
            "not compared: step_time_s = 2 is shorter than the GPU's peak allows",
        ),
        (
            {"peak_mem_gib": "500"},
            {"memory_bytes": 80 << 30},
            "not compared: a measured memory of 500 GiB is more than the GPU's 80.0",
        ),
        ({"step_time_s": "n/a", "peak_mem_gib": ""}, {}, ""),
    ],
)
def test_figures_that_cannot_be_true_are_not_compared(
    cells: dict[str, str], limits: dict[str, Any], reason: str
) -> None:
    made = dataclasses.replace(GOOD, **limits).cells(Case({**CASES[0].row, **cells}))
    assert made["reason"] == reason
    errors = {"step_time_s": made["error"], "peak_mem_gib": made["memory_error"]}
    assert [errors.pop(name) for name in cells] == [""] * len(cells)
    assert all(errors.values())


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    """What is on disk is done; a case whose cells have changed since is not."""
    ResultTable(tmp_path / "out.csv", CASES).add(CASES[1], GOOD)
    again = ResultTable(tmp_path / "out.csv", CASES)
    assert [again.is_done(case) for case in CASES] == [False, True, False]
    assert not again.is_done(Case({**CASES[1].row, "step_time_s": "3"}))


@pytest.mark.parametrize(
    "reason", ["the run failed: the disk filled up", "the recipe failed: RuntimeError: out of luck"]
)
def test_failed_cases_are_tried_again(reason: str, tmp_path: Path) -> None:
    table = ResultTable(tmp_path / "out.csv", CASES)
    table.add(CASES[0], Prediction(reason=reason))
    table.add(CASES[1], Prediction(reason="hidden is empty"))
    assert [table.is_done(case) for case in CASES] == [False, True, False]


def test_rows_come_in_the_order_of_the_input_whatever_ends_first(tmp_path: Path) -> None:
    table = ResultTable(tmp_path / "out.csv", CASES)
    for case in (CASES[2], CASES[0], CASES[1]):
        table.add(case, GOOD)
    assert [row["id"] for row in rows(table.path)] == ["a", "b", "c"]


def test_tables_are_written_atomically(tmp_path: Path) -> None:
    ResultTable(tmp_path / "out.csv", CASES).add(CASES[0], GOOD)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_another_table_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("id,name\n1,x\n")
    with pytest.raises(InputError, match="is not an output of `presim validate`"):
        ResultTable(path, CASES)


def test_an_output_may_be_the_input_of_the_next_run(tmp_path: Path) -> None:
    """Cells of an older prediction are replaced, and do not make a case new."""
    first = ResultTable(tmp_path / "out.csv", CASES)
    first.add(CASES[0], GOOD)
    old = Case(rows(first.path)[0])
    table = ResultTable(tmp_path / "again.csv", [old])
    table.add(old, Prediction(1.0, outcome="ok"))
    (row,) = rows(table.path)
    assert (row["error"], row["predicted_peak_mem_gib"]) == ("-0.5", "")
    assert table.is_done(old)
