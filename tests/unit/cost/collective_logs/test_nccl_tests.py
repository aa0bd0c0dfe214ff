"""Reading logs of nccl-tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presim import hardware
from presim.cost.collective_logs.nccl_tests import read
from presim.errors import InputError
from support import nccl_logs

CLUSTER = hardware.choose_cluster(gpu="h100-sxm", nodes=2)


def written(folder: Path, text: str, name: str = "run.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_log_says_what_was_measured_where(tmp_path: Path) -> None:
    log = read(written(tmp_path, nccl_logs.text(CLUSTER, "all_gather", 16, 2)))
    assert (log.kind, log.ranks, log.nodes, log.gpu) == ("all_gather", 16, 2, "NVIDIA H100 80GB HBM3")
    assert len(log.rows) == 28
    assert log.rows[0][0] == 8
    assert log.rejected == {}


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: ", " 0: ", "[0]", "[pod/nccl-launcher-x7/main] "])
def test_prefixes_of_launchers_are_looked_through(tmp_path: Path, prefix: str) -> None:
    plain = read(written(tmp_path, nccl_logs.text(CLUSTER, "all_reduce", 16, 2)))
    through = read(written(tmp_path, nccl_logs.text(CLUSTER, "all_reduce", 16, 2, prefix), "mpi.log"))
    assert through.rows == plain.rows


def test_older_logs_have_no_column_for_the_root_and_no_name(tmp_path: Path) -> None:
    """Whole numbers stand where newer logs have the root."""
    text = (
        "#   Rank  0 Pid 1 on node-0 device  0 [0x00] A100\n#   Rank  1 Pid 2 on node-0 device  1 [0x00] A100\n"
        "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "  1073741824     268435456     float     sum    16170   66.40   66.40    N/A    16166   66.42   66.42    N/A\n"
    )
    log = read(written(tmp_path, text))
    assert log.rows == ((1073741824, 16170.0),)
    assert log.kind == "all_reduce"


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter"])
def test_sums_are_told_apart_by_the_ratio_of_their_bandwidths(kind: str, tmp_path: Path) -> None:
    """Of 8 ranks an all-reduce moves 2 x 7/8 of its size over a bus, a reduce-scatter half of that."""
    devices = "".join(f"#  Rank {rank} Pid {rank} on node-0 device {rank} [0x00] A100\n" for rank in range(8))
    lines = nccl_logs.line(1 << 30, 16170.0, {"all_reduce": 1.75, "reduce_scatter": 0.875}[kind])
    assert read(written(tmp_path, f"{devices}{nccl_logs.HEADER}\n{lines}\n")).kind == kind
    between = nccl_logs.line(1 << 30, 16170.0, 1.3)
    with pytest.raises(InputError, match="does not name the collective"):
        read(written(tmp_path, f"{devices}{nccl_logs.HEADER}\n{between}\n"))


def test_a_name_may_say_what_the_log_does_not(tmp_path: Path) -> None:
    text = nccl_logs.text(CLUSTER, "all_gather", 8, 1).replace("# Collective test starting: all_gather_perf\n", "")
    assert read(written(tmp_path, text, "alltoall-8.log")).kind == "all_to_all"
    assert read(written(tmp_path, text, "h100_AllGather.txt")).kind == "all_gather"
    with pytest.raises(InputError, match="does not name the collective; name the file after it"):
        read(written(tmp_path, text.replace("sum", "none")))


@pytest.mark.parametrize(("kind", "name"), [("all_reduce", "all_gather.log"), ("broadcast", "reduce_scatter.log")])
def test_a_wrong_name_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    """The bandwidth of the bus tells an all-reduce from a gather, and a broadcast from a scatter."""
    text = nccl_logs.text(CLUSTER, kind, 8, 1).replace(f"# Collective test starting: {kind}_perf\n", "")
    with pytest.raises(
        InputError, match=r"has 0\.88; name the file after its collective, and keep the lines of all its ranks$"
    ):
        read(written(tmp_path, text, name))


def test_lines_that_cannot_be_are_counted_and_left_out(tmp_path: Path) -> None:
    text = nccl_logs.text(CLUSTER, "all_reduce", 8, 1)
    wrong = [
        nccl_logs.line(1 << 20, 100.0).replace("  10.49", "  99.99"),
        nccl_logs.line(1 << 20, 100.0).replace(" 100.00", "    0.0", 1),
        nccl_logs.line(1 << 20, 100.0).replace(" 100.00", "    n/a", 1),
    ]
    log = read(written(tmp_path, text + "\n".join(wrong) + "\n"))
    assert len(log.rows) == 28
    assert log.rejected == {
        "size, time and bandwidth do not agree": 1,
        "no bytes or no time": 1,
        "columns that are not numbers": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "has no lines of nccl-tests (size, count, type, redop, root, time, …); give its output"),
        (
            nccl_logs.line(8, 10.0),
            "names no devices (# Rank 0 …), so ranks and nodes are unknown; keep the whole log",
        ),
    ],
)
def test_what_is_no_whole_log_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {message}')}$"):
        read(path)
    with pytest.raises(InputError, match=r": No such file or directory; give logs of nccl-tests$"):
        read(tmp_path / "absent.log")


def test_one_rank_moves_nothing(tmp_path: Path) -> None:
    """Its bandwidths are zero, which say nothing of the collective either."""
    device = "#  Rank 0 Pid 1 on node-0 device 0 [0x00] A100\n"
    log = read(written(tmp_path, f"{device}{nccl_logs.HEADER}\n{nccl_logs.line(1 << 20, 5.0, 0.0)}\n"))
    assert (log.rows, log.rejected) == ((), {"a single rank moves no data": 1})


def test_lines_that_come_twice_count_once(tmp_path: Path) -> None:
    """Another run of a size has other figures; of those the median counts."""
    text = nccl_logs.text(CLUSTER, "all_reduce", 8, 1)
    log = read(written(tmp_path, text + text))
    assert log.rows == read(written(tmp_path, text, "once.log")).rows
    assert log.rejected == {"a second line with the same figures": 28}
    lines = [nccl_logs.line(1 << 30, us, 1.0) for us in (4000.0, 4300.0, 4100.0)]
    device = "#  Rank 0 Pid 1 on a device 0 [0x00] A100\n#  Rank 1 Pid 2 on a device 1 [0x00] A100\n"
    assert read(written(tmp_path, "\n".join([device, nccl_logs.HEADER, *lines]), "all_reduce.log")).rows == (
        (1 << 30, 4100.0),
    )
