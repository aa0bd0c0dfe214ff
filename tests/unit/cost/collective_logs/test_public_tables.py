"""Public tables of collectives are read as if they were logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from presim import hardware
from presim.cost.collective_logs import public_tables
from presim.errors import InputError
from support import nccl_logs


def _parquet(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_aiconfigurator_counts_elements_and_names_its_card_by_the_folder(tmp_path: Path) -> None:
    row = {"nccl_dtype": "half", "num_gpus": 8, "message_size": 512, "op_name": "alltoall", "latency": 0.02}
    table = _parquet(
        tmp_path / "data/h200_sxm/comm/nccl/2.23/nccl_perf.parquet",
        row, {**row, "message_size": 4096, "latency": 0.03}, {**row, "nccl_dtype": "int8"}, {**row, "latency": None},
    )  # fmt: skip
    (log,) = public_tables.logs(table)
    assert (log.kind, log.ranks, log.nodes, log.gpu) == ("all_to_all", 8, 1, "h200")
    assert log.rows == ((1024, 20.0), (8192, 30.0))
    assert log.rejected == {"a missing number of ranks, size or time": 1}


def test_vtrains_tables_are_thinned(tmp_path: Path) -> None:
    lines = [f"{size << 20},1,float,{1000 * size},1.0,9,9" for size in range(1, 9)]
    text = "\n".join(["size(B),count,type,time(ns),busbw(GB/s),time(ns),busbw(GB/s)", *lines, "9,,float,x,,,"])
    (log,) = public_tables.logs(_written(tmp_path / "a100/AR_GPU3_1M_8M_LUT", text))
    assert (log.kind, log.ranks, log.gpu) == ("all_reduce", 3, "a100")
    assert [(size >> 20, us) for size, us in log.rows] == [(1, 1.0), (2, 2.0), (3, 3.0), (5, 5.0), (7, 7.0), (8, 8.0)]
    assert log.rejected == {
        "a missing number of ranks, size or time": 1,
        "a size close to another one": 2,
    }


def test_vidur_says_how_many_of_a_node_take_part(tmp_path: Path) -> None:
    head = "time_stats.send_recv.median,num_workers,devices_per_node,size\n"
    rows = "0.5,2,1,4194304\n0.3,2,2,4194304\n0.01,2,2,2048\n0,2,2,8388608\n"
    far, near = sorted(
        public_tables.logs(_written(tmp_path / "h100_dgx/send_recv.csv", head + rows)), key=lambda log: -log.nodes
    )
    assert (far.kind, far.nodes, far.gpu, far.rows) == ("send_recv", 2, "h100", ((4194304, 500.0),))
    assert (near.nodes, near.rows) == (1, ((4194304, 300.0),))
    assert near.rejected == {"below 1 MiB, where event timing distorts": 1, "no bytes or no time": 1}


def test_a_folder_is_its_tables_and_logs(tmp_path: Path) -> None:
    nccl_logs.write(tmp_path, hardware.choose_cluster(gpu="h100-sxm"), "all_gather", 8, 1)
    _written(tmp_path / "h100/AR_GPU2_1M_8M_LUT", "head\n1048576,1,float,9000\n")
    _written(tmp_path / "README.md", "no table")
    assert [log.kind for log in public_tables.logs(tmp_path)] == ["all_gather", "all_reduce"]
    with pytest.raises(InputError, match=r"holds no table of collectives .* and no \*.log; give logs of nccl-tests"):
        public_tables.logs(_written(tmp_path / "none/README.md", "").parent)


def test_a_table_of_nothing_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path / "a100/AR_GPU2_1M_8M_LUT", "head\n1048576,1,float,-3\n")
    with pytest.raises(InputError, match="no row can be used: 1: no bytes or no time"):
        public_tables.logs(path)
