"""Nsight Compute's table: durations of kernels by name and size of launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.cost.measured.importers import ncu
from presim.cost.measured.importers.find import import_tables, reader_of
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.measured.measured_rows import Intake
from presim.cost.price import Origin
from presim.hardware import catalogue
from presim.trace.signatures import Kernel
from support.files import write_lines

HEADER = '"ID","Kernel Name","Block Size","Grid Size","device__attribute_display_name","gpu__time_duration.sum"'
METRICS = "gpu__time_duration.sum,device__attribute_display_name"
H100 = "NVIDIA H100 80GB HBM3"


def table(folder: Path, *rows: str, unit: str = "us") -> Path:
    path = folder / "kernels.csv"
    write_lines(path, HEADER, f'"","","","","","{unit}"', *rows)
    return path


def launch(name: str = "_Z4spinPf", duration: str = "12.5", gpu: str = H100, grid: str = "(64, 2, 1)") -> str:
    return f'"0","{name}","(256, 1, 1)","{grid}","{gpu}","{duration}"'


def test_launches_of_one_kernel_and_size_are_one_row(tmp_path: Path) -> None:
    path = table(tmp_path, launch(), launch(duration="14.5"), launch(duration="13.5"), launch(grid="(8, 1, 1)"))
    assert reader_of(path) == ("ncu", ncu)
    first, second = Intake().take(ncu.read(path)).accepted
    assert (first.gpu, first.duration_ns, first.samples) == ("h100-sxm", 13_500.0, 3)
    assert first.signature == Kernel("_Z4spinPf", (64, 2, 1), (256, 1, 1))
    assert (second.duration_ns, second.samples) == (12_500.0, 1)


def test_units_and_separators_of_thousands_are_read(tmp_path: Path) -> None:
    (row,) = Intake().take(ncu.read(table(tmp_path, launch(duration="12,345"), unit="nsecond"))).accepted
    assert row.duration_ns == 12_345.0


@pytest.mark.parametrize(
    ("duration", "unit", "duration_ns"),
    [
        ("117.344", "ns", 117_344.0),  # a locale with points between thousands
        ("117.344", "us", 117_344.0),
        ("28,45", "us", 28_450.0),
        ("1.028,45", "us", 1_028_450.0),
        ("1,028.45", "us", 1_028_450.0),
        ("4.0e-05", "second", 40_000.0),
    ],
)
def test_numbers_of_the_user_s_locale(tmp_path: Path, duration: str, unit: str, duration_ns: float) -> None:
    (row,) = Intake().take(ncu.read(table(tmp_path, launch(duration=duration), unit=unit))).accepted
    assert row.duration_ns == pytest.approx(duration_ns)


def test_a_table_of_metrics_within_what_the_program_printed(tmp_path: Path) -> None:
    """As ``ncu --csv`` prints it to a console: a row for each launch and metric."""
    place = '"1","python","_Z4spinPf","1","7","(256, 1, 1)","(64, 2, 1)","0","9.0"'
    write_lines(
        tmp_path / "log.csv",
        "step 1, loss 3.4",
        "==PROF== Connected to process 1",
        '"ID","Process ID","Process Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
        '"Section Name","Metric Name","Metric Unit","Metric Value"',
        f'"0",{place},"SpeedOfLight","Duration","us","12.50"',
        f'"0",{place},"Command line","dram__bytes.sum","byte","1,024"',
        f'"0",{place},"Command line","device__attribute_display_name","","{H100}"',
        f'"1",{place},"Command line","gpu__time_duration.sum","ns","14,500"',
        f'"1",{place},"Command line","device__attribute_display_name","","{H100}"',
        f'"2",{place},"Command line","device__attribute_display_name","","{H100}"',
        f'"3",{place},"Command line","gpu__time_duration.sum","ns","14,500"',
        "==PROF== Disconnected from process 1",
    )
    assert reader_of(tmp_path / "log.csv") == ("ncu", ncu)
    intake = Intake().take(ncu.read(tmp_path / "log.csv"))
    (row,) = intake.accepted
    assert (row.duration_ns, row.samples) == (13_500.0, 2)
    assert intake.rejected == {
        "a launch without its duration: profile with --metrics gpu__time_duration.sum": 1,
        f"a launch without its GPU's name: profile with --metrics {METRICS}": 1,
    }


def test_what_cannot_be_used_is_counted_by_reason(tmp_path: Path) -> None:
    rows = [launch(gpu=""), launch(gpu="Abacus"), launch(duration="n/a"), launch(grid="64")]
    intake = Intake().take(ncu.read(table(tmp_path, *rows)))
    assert not intake.accepted
    assert intake.rejected == {
        f"a launch without its GPU's name: profile with --metrics {METRICS}": 1,
        "a GPU that the catalogue does not have: Abacus": 1,
        "gpu__time_duration.sum is not a positive number": 1,
        "Kernel Name, Grid Size or Block Size that are not read": 1,
    }
    path = tmp_path / "no-units.csv"
    write_lines(path, HEADER, launch())
    assert Intake().take(ncu.read(path)).rejected == {
        "a table without the row of units below its header: no-units.csv": 1
    }


def test_a_captured_kernel_with_its_operator_and_bytes_finds_the_row(tmp_path: Path) -> None:
    """A capture knows more of a launch than the table; another size of launch has no price."""
    (row,) = Intake().take(ncu.read(table(tmp_path, launch()))).accepted
    captured = Kernel("_Z4spinPf", (64, 2, 1), (256, 1, 1), bytes=4096, operator="mine::spin")
    other = Kernel("_Z4spinPf", (65, 2, 1), (256, 1, 1), bytes=4096, operator="mine::spin")
    price, nothing = MeasuredEstimator(catalogue.gpu("h100-sxm"), [row]).price([captured, other])
    assert nothing is None
    assert price is not None
    assert price.origin is Origin.MEASURED
    assert price.duration_ns >= 12_500


def test_the_table_is_imported_as_prices(tmp_path: Path) -> None:
    outcome = import_tables([table(tmp_path, launch())], tmp_path / "prices")
    assert [file.rows for file in outcome.tables] == [1]
