"""The verb `validate`: what it writes, and that it goes on where it was."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from presim.cli import main
from presim.studies.validation import case_workers, serving
from presim.studies.validation.cases import Case
from presim.studies.validation.results import Prediction

TABLE = "id,framework,gpu,step_time_s\na,f,H100,1\nb,f,A100,2\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Ids of the cases that were predicted; the table lies in the working directory."""
    ids: list[str] = []

    def predict(
        cases: Sequence[Case], providers: object, jobs: int, options: object
    ) -> Iterator[tuple[Case, Prediction]]:
        for case in cases:
            ids.append(case.id)
            yield case, Prediction(1.1, outcome="ok")

    monkeypatch.setattr(case_workers, "solve_all", predict)
    monkeypatch.chdir(tmp_path)
    Path("cases.csv").write_text(TABLE)
    return ids


def test_the_output_is_named_after_the_table(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["validate", "cases.csv", "--report", "page.md"]) == 0
    assert capsys.readouterr().out == "cases.predicted.csv: 2 cases, 2 with a predicted and a measured step time\n"
    with Path("cases.predicted.csv").open() as file:
        assert [row["error"] for row in csv.DictReader(file)] == ["0.1", "-0.45"]
    assert Path("page.md").read_text().startswith("# Predicted beside measured\n")


def test_a_second_call_does_only_what_is_left(asked: list[str]) -> None:
    main.run(["validate", "cases.csv", "--limit", "1"])
    main.run(["validate", "cases.csv"])
    assert asked == ["a", "b"]


def test_again_predicts_what_is_there_already(asked: list[str]) -> None:
    main.run(["validate", "cases.csv", "--only", "A100"])
    main.run(["validate", "cases.csv", "--only", "A100", "--again"])
    assert asked == ["b", "b"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--out", "./cases.csv"), "CASES.csv, --out and --report must be different files: give each its own"),
        (
            ("--report", "cases.predicted.csv"),
            "CASES.csv, --out and --report must be different files: give each its own",
        ),
        (("--out", "no/out.csv"), "cannot write no/out.csv: there is no such directory; choose another path"),
        (("--report", "no/page.md"), "cannot write no/page.md: there is no such directory; choose another path"),
        (("--captures", "cases.csv/x"), "cannot save the trace to cases.csv/x: "),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_runs(
    options: tuple[str, str], says: str, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["validate", "cases.csv", *options]) == 2
    assert capsys.readouterr().err.startswith(f"presim: {says}")
    assert asked == []


def test_recipes_have_to_be_there(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["validate", "cases.csv", "--recipes", "nowhere"]) == 2
    assert capsys.readouterr().err == (
        "presim: there is no folder nowhere of recipes; name the checkout's validation/recipes with --recipes\n"
    )
    assert not asked
    assert not Path("cases.predicted.csv").exists()


SERVED = "id,model,isl,osl,tpot_mean_ms\na,m,8,4,10\nb,m,16,4,10\n"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Ids of the serving runs that were predicted; 'b' is unpredictable until the list has three ids."""
    ids: list[str] = []

    def predict(row: dict[str, str]) -> dict[str, float]:
        ids.append(row["id"])
        if row["id"] == "b" and len(ids) < 3:
            raise KeyboardInterrupt
        return {"predicted_tpot": 11.0, "predicted_tpot_low": 9.0, "predicted_tpot_high": 12.0}

    monkeypatch.setattr(serving, "predict_row", predict)
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").write_text(SERVED)
    return ids


def test_interrupted_serving_runs_continue_where_they_stopped(served: list[str]) -> None:
    """What was predicted is in the output at once, and is not predicted a second time."""
    main.run(["validate", "--kind", "serving", "runs.csv", "--out", "out.csv"])
    with Path("out.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["a"]
    assert main.run(["validate", "--kind", "serving", "runs.csv", "--out", "out.csv"]) == 0
    assert served == ["a", "b", "b"]
    with Path("out.csv").open() as file:
        assert [(row["id"], row["predicted_tpot"]) for row in csv.DictReader(file)] == [("a", "11"), ("b", "11")]


def test_a_changed_serving_run_is_predicted_again(served: list[str]) -> None:
    served.extend(["x", "y", "z"])
    main.run(["validate", "--kind", "serving", "runs.csv", "--out", "out.csv"])
    Path("runs.csv").write_text(SERVED.replace("b,m,16", "b,m,32"))
    main.run(["validate", "--kind", "serving", "runs.csv", "--out", "out.csv"])
    assert served[3:] == ["a", "b", "b"]
    with Path("out.csv").open() as file:
        assert [row["isl"] for row in csv.DictReader(file)] == ["8", "32"]


def test_serving_runs_do_not_overwrite_another_table(served: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.csv").write_text("id,isl\na,1\n")
    assert main.run(["validate", "--kind", "serving", "runs.csv", "--out", "out.csv"]) == 2
    assert capsys.readouterr().err == (
        "presim: out.csv is not an output of `presim validate` and would be overwritten; choose another --out\n"
    )
    assert served == []
