"""Reading the capture log."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.reading import log as logs
from presim.capture.reading.log import Descriptor, parse, read_log
from presim.errors import CaptureError
from presim.trace.schema import Kind
from support.capture_logs import LogBuilder

KERNEL = "kernel name=_Z3addPf grid=128,1,1 block=256,1,1 shared=0"


def example() -> LogBuilder:
    build = LogBuilder()
    build.record(Kind.WORK, work=KERNEL, cpu_ns=1_000, stream=7, value=1)
    build.record(Kind.ALLOC, cpu_ns=1_500, object=0x7F00_0000_0000, value=512)
    build.calls = {"cudaFoo": 3}
    build.notes = ["communicator serial=0 size=8 rank=0"]
    return build


@pytest.mark.parametrize("room", [0, 4096])
def test_a_log_is_read_as_written(tmp_path: Path, room: int) -> None:
    """Files with unused mapped space read like truncated ones."""
    example().write(tmp_path, room=room)
    log = read_log(tmp_path)
    assert log.records.tolist() == example().records().tolist()
    assert log.texts == (KERNEL,)
    assert log.calls == {"cudaFoo": 3}
    assert log.notes == ("communicator serial=0 size=8 rank=0",)
    assert not log.disk_full


def test_the_record_layout_matches_the_recorder() -> None:
    """48 bytes without holes; recorder.h asserts the same size."""
    assert logs.RECORD.itemsize == 48
    offsets = [logs.RECORD.fields[name][1] for name in logs.RECORD.names]  # type: ignore[index,union-attr]
    assert offsets == [0, 8, 16, 24, 28, 32, 36, 38, 39, 40, 41]


def test_an_incomplete_last_line_is_omitted(tmp_path: Path) -> None:
    example().write(tmp_path)
    (tmp_path / "work.tsv").write_bytes(b"kernel name=a\nkernel na")
    assert read_log(tmp_path).texts == ("kernel name=a",)


def test_missing_files_give_empty_tables(tmp_path: Path) -> None:
    example().write(tmp_path)
    for name in ("work.tsv", "calls.tsv", "notes.tsv"):
        (tmp_path / name).unlink()
    log = read_log(tmp_path)
    assert (log.texts, log.calls, log.notes) == ((), {}, ())


def test_a_missing_log_points_to_the_doctor(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"wrote no log .*; run `presim doctor` to see what is missing$"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:20], id="cut within the header"),
        pytest.param(lambda data: b"X" + data[1:], id="magic"),
        pytest.param(lambda data: data[:8] + b"\xff" + data[9:], id="version"),
        pytest.param(lambda data: data[:12] + b"\x31" + data[13:], id="record size"),
    ],
)
def test_a_log_of_another_format_is_refused_with_one_sentence(tmp_path: Path, damage: object) -> None:
    example().write(tmp_path)
    path = tmp_path / "log.bin"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CaptureError, match=r"log\.bin is not a capture log of version 1; rebuild the shim with"):
        read_log(tmp_path)


def test_incomplete_records_are_omitted(tmp_path: Path) -> None:
    """A killed process may leave a file shorter than its header claims."""
    example().write(tmp_path)
    path = tmp_path / "log.bin"
    path.write_bytes(path.read_bytes()[:-10])
    assert len(read_log(tmp_path).records) == 1


def test_a_descriptor_is_a_family_and_fields() -> None:
    found = parse(KERNEL)
    assert found.family == "kernel"
    assert found.fields["name"] == "_Z3addPf"
    assert found.numbers("grid") == (128, 1, 1)
    assert (found.number("shared"), found.number("absent", 7), found.numbers("absent")) == (0, 7, ())


def test_a_value_may_contain_an_equals_sign() -> None:
    assert parse("scope name=a=b") == Descriptor("scope", {"name": "a=b"})
    assert parse("barrier") == Descriptor("barrier", {})
