"""Rows of nccl-tests logs beside what presim says."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.errors import InputError
from presim.studies.validation.published_collectives import COLLECTIVES
from support.plans import ELSEWHERE

PAPERS = Path(__file__).parents[3] / "validation" / "papers"
ROW = {
    "source": "a log", "gpu": "H100 SXM 80GB (a server)", "n_gpus": "16", "nodes": "2",
    "inter_link": "8x CX-7 NDR 400 Gb/s IB per node", "collective": "all_reduce", "dtype": "float32",
    "size_bytes": "1073741824", "time_us": "4800",
}  # fmt: skip


def test_a_row_is_priced_on_the_cluster_that_it_names() -> None:
    (row,) = COLLECTIVES.predict([ROW])
    assert row["reason"] == ""
    assert float(row["low_time_us"]) < float(row["predicted_time_us"]) < float(row["high_time_us"])
    assert float(row["error"]) == pytest.approx(float(row["predicted_time_us"]) / 4800 - 1, abs=1e-4)
    assert abs(float(row["error"])) < 0.2  # 16 H100 on eight 400 Gb/s ports a node: 450 GB/s or so


def test_the_network_of_a3_mega_is_recognised_by_name() -> None:
    said = {"inter_link": "GPUDirect-TCPXO 8x200 Gb/s Ethernet", "time_us": "6759"}
    (row,) = COLLECTIVES.predict([{**ROW, **said}])
    assert abs(float(row["error"])) < 0.05  # nearly all of 200 Gb/s a port


def test_an_all_reduce_of_32_h800_that_nothing_was_fitted_to_is_met() -> None:
    rows = COLLECTIVES.predict(COLLECTIVES.read(PAPERS / "echo.csv"))
    errors = sorted(abs(float(row["error"])) for row in rows)
    assert len(errors) == 7
    assert errors[3] < 0.08
    assert errors[-1] < 0.12


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"collective": "mpi_barrier"}, "presim has no model of 'mpi_barrier'"),
        ({"time_us": ""}, "time_us is empty"),
        ({"size_bytes": ""}, "size_bytes is empty"),
        ({"size_bytes": "0"}, "size_bytes = 0 is not a number of bytes"),
        ({"size_bytes": "-1024"}, "size_bytes = -1024 is not a number of bytes"),
        ({"size_bytes": "1GB"}, "size_bytes = 1GB is not a number of bytes"),
        ({"dtype": "words"}, "dtype = 'words' is not a type of nccl-tests or PyTorch"),
        ({"time_us": "4.8"}, "left out: faster than the links allow"),
        ({"time_us": "inf"}, "time_us = inf is not a duration"),
        ({"gpu": "TPU v5"}, f"the hardware catalogue has no GPU 'TPU v5'; {ELSEWHERE}"),
        ({"nodes": "3"}, "16 GPUs cannot be spread over 3 nodes evenly"),
        (
            {"inter_link": "Slingshot 4x200 Gb/s"},
            "the hardware catalogue has no fabric for 'Slingshot 4x200 Gb/s'",
        ),
    ],
)
def test_a_row_that_cannot_be_priced_says_why(change: dict[str, str], reason: str) -> None:
    (row,) = COLLECTIVES.predict([{**ROW, **change}])
    assert (row["predicted_time_us"], row["reason"]) == ("", reason)


def test_the_table_and_its_report(tmp_path: Path) -> None:
    rows = COLLECTIVES.predict([ROW, {**ROW, "size_bytes": "1048576", "time_us": "100"}])
    COLLECTIVES.write(rows, tmp_path / "out.csv")
    assert COLLECTIVES.read(tmp_path / "out.csv") == rows
    assert "| a log | H100 SXM 80GB (a server) | all_reduce | 2 | 16 | 2 |" in COLLECTIVES.report(rows)


def test_a_table_without_times_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("gpu,n_gpus,collective,size_bytes\n")
    with pytest.raises(InputError) as raised:
        COLLECTIVES.read(table)
    lists = "docs/reference/validation-tables.md lists what a collective has"
    assert str(raised.value) == f"{table} has no column 'time_us'; {lists}"
