"""CSV tables are read with a sentence for what is wrong, and written whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.errors import InputError
from presim.studies.validation.case_tables import read_table, write_table


def test_written_tables_are_read_back(tmp_path: Path) -> None:
    rows = [{"a": "1", "b": "x, y"}, {"a": "", "b": 'a "word"\nand a line'}]
    write_table(tmp_path / "t.csv", ["a", "b"], rows)
    assert read_table(tmp_path / "t.csv", ["a"], "a row has") == rows


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    write_table(table, ["a"], [{"a": "1"}])
    with pytest.raises(ValueError, match="not in fieldnames"):
        write_table(table, ["a"], [{"b": "2"}])
    assert read_table(table, ["a"], "a row has") == [{"a": "1"}]
    with pytest.raises(InputError, match="No such file or directory; choose another path"):
        write_table(tmp_path / "none" / "t.csv", ["a"], [])
