"""Which dataset a folder is, and what it is known by."""

from __future__ import annotations

from pathlib import Path

from presim.cost.measured import table
from presim.cost.measured.importers.find import commit, describe_import, digest, import_tables, reader_of
from presim.cost.measured.measured_rows import Intake, Measurement
from presim.trace.signatures import Gemm


def test_a_folder_of_tables_is_a_dataset_too(tmp_path: Path) -> None:
    work = Gemm(4096, 4096, 4096, 1, "bfloat16")
    rows = [Measurement(gpu=gpu, signature=work, duration_ns=3e5, source="test") for gpu in ("h100-sxm", "nobody")]
    (tmp_path / "mine").mkdir()
    table.write(rows, tmp_path / "mine" / f"a{table.SUFFIX}", {})
    name, reader = reader_of(tmp_path / "mine")
    intake = Intake().take(reader.read(tmp_path / "mine"))
    assert (name, intake.accepted) == ("presim", rows[:1])
    assert intake.rejected == {"a GPU that the catalogue does not have: nobody": 1}
    said = import_tables([tmp_path / "mine"], tmp_path / "out")
    assert describe_import(said)[0] == f"{tmp_path}/out/h100-sxm.imported{table.SUFFIX}: 1 rows"


def test_a_dataset_is_known_by_its_commit_and_contents(tmp_path: Path) -> None:
    (tmp_path / "COMMIT").write_text("0123456789abcdef\n")
    (tmp_path / "a").write_text("one")
    before = digest(tmp_path, [tmp_path / "a"])
    (tmp_path / "a").write_text("two")
    assert (commit(tmp_path), digest(tmp_path, [tmp_path / "a"]) == before) == ("0123456789ab", False)
