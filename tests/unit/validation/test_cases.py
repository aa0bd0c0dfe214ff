"""Reading the table of cases: what is refused, and which cells mean what."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.errors import InputError
from presim.studies.validation.cases import CannotBuildError, Case, read_cases, select

HEADER = "id,framework,gpu,model,step_time_s,something_else\n"


def table(folder: Path, text: str) -> Path:
    path = folder / "cases.csv"
    path.write_text(text)
    return path


def test_unknown_columns_are_kept_and_ignored(tmp_path: Path) -> None:
    (case,) = read_cases(table(tmp_path, HEADER + "a,torchtitan,H100,m,1.5,x\n"))
    assert (case.id, case.text("something_else"), case.number("step_time_s")) == ("a", "x", 1.5)


def test_a_short_row_has_empty_cells(tmp_path: Path) -> None:
    (case,) = read_cases(table(tmp_path, HEADER + "a,torchtitan,H100\n"))
    assert case.number("step_time_s") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,framework\na,b\n", "has no column 'gpu'; docs/reference/validation-tables.md lists what a case may have"),
        (HEADER + ",f,g\n", "row 2 has no id; give every case an id of its own"),
        (HEADER + "a,f,g\na,f,g\n", "id 'a' is in row 2 and again in row 3; make them differ"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"{message}$"):
        read_cases(table(tmp_path, text))


def test_a_missing_file_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: No such file or directory; name a table of cases$"):
        read_cases(tmp_path / "none.csv")


def test_an_invalid_count_names_its_column() -> None:
    case = Case({"id": "a", "tp": "many", "pp": "", "cp": "2.0"})
    assert (case.count("cp"), case.count("pp", 1)) == (2, 1)
    with pytest.raises(CannotBuildError, match=r"^tp = 'many' is not a whole number$"):
        case.count("tp")
    with pytest.raises(CannotBuildError, match=r"^pp is empty$"):
        case.count("pp")


@pytest.mark.parametrize(
    ("row", "memory"),
    [
        ({"peak_mem_gib": "2", "peak_mem_kind": "max_reserved"}, (2.0, "reserved")),
        ({"peak_mem_gib": "2", "peak_mem_kind": ""}, (2.0, "allocated")),
        ({"peak_allocated_gib": "1", "peak_reserved_gib": "3"}, (1.0, "allocated")),
        ({"peak_reserved_gib": "3"}, (3.0, "reserved")),
        ({}, (None, "allocated")),
    ],
)
def test_memory_is_compared_with_its_own_kind(row: dict[str, str], memory: tuple[float | None, str]) -> None:
    assert Case(row).measured_memory() == memory


@pytest.mark.parametrize(
    ("said", "rank"),
    [
        ("rank 12", 12),
        ("last rank (world_size-1), last PP stage", -1),
        ("first pipeline stage", 0),
        ("max over ranks", None),
        ("", None),
    ],
)
def test_the_measured_rank_is_read(said: str, rank: int | None) -> None:
    assert Case({"rank_or_stage": said}).measured_rank() == rank


def test_cases_are_chosen_by_id_framework_model_or_gpu() -> None:
    cases = [Case({"id": name, "gpu": gpu}) for name, gpu in (("a", "H100"), ("b", "A100"), ("c", "H100"))]
    assert [case.id for case in select(cases, "H100", None)] == ["a", "c"]
    assert [case.id for case in select(cases, None, 2)] == ["a", "b"]
    with pytest.raises(InputError, match="is not a regular expression"):
        select(cases, "(", None)
