"""The result as a file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest

from presim.analysis.summarise import summarise
from presim.errors import InputError
from presim.report import json
from presim.report.files import check_writable, write_file
from presim.result import Result
from support import fakes, workloads


@pytest.fixture(scope="module")
def result() -> Result:
    priced = fakes.priced(workloads.launch_bound())
    return summarise(priced, fakes.simulate(priced), fakes.DEVICE)


def test_rows_of_numbers_take_one_line(result: Result) -> None:
    """A timeline of many points does not drown the figures; the keys are sorted."""
    text = json.encode(result).decode()
    assert re.search(r'"times_s": \[[\d.]+, [\d.]+\]\n', text)
    assert text.index('"collectives"') < text.index('"step_time_s"')


def test_a_newer_result_is_refused_in_words(result: Result) -> None:
    """Even where its fields no longer fit."""
    with pytest.raises(InputError, match=r"^the result was written by a newer presim \(schema 9, this one reads 1\)"):
        json.decode(b'{"schema_version": 9, "job": 1}')


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"schema_version": 1}', b"\xff"])
def test_what_is_no_result_is_refused_in_words(content: bytes) -> None:
    """One sentence that says how to make one."""
    with pytest.raises(
        InputError, match=r"^r\.json is not a result of presim's .*; make one with `presim run --json`$"
    ):
        json.decode(content, "r.json")


def test_every_field_has_a_description() -> None:
    """The schema explains each property, so no reader has to guess a unit."""
    schema = msgspec.json.decode(json.json_schema())
    for name, definition in schema["$defs"].items():
        for field, about in definition["properties"].items():
            assert about.get("description"), f"{name}.{field}"


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """Writing replaces the file at once and leaves nothing else behind."""
    target = tmp_path / "result.json"
    write_file(target, b"one")
    write_file(target, b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert target.read_bytes() == b"two"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Before the work and after it."""
    missing = tmp_path / "no" / "result.json"
    with pytest.raises(InputError, match=r"no such directory; choose another path$"):
        check_writable(missing)
    with pytest.raises(InputError, match=r"it is a directory; name a file$"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match=r"^cannot write .*: No such file or directory; choose another path"):
        write_file(missing, b"")


def test_pipes_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    """``--json >(gzip >r.gz)`` and ``--json /dev/stdout`` name something that is there to be written to."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file(pipe, b"one")
    assert os.read(reader, 10) == b"one"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "result.json"
    link.symlink_to(tmp_path / "there" / "kept.json")
    write_file(link, b"one")
    write_file(link, b"two")
    assert link.is_symlink()
    assert (tmp_path / "there" / "kept.json").read_bytes() == b"two"
