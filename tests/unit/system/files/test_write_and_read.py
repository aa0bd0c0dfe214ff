"""Files are whole or not there, and what cannot be written is said beforehand."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.system.files import check_folder, check_writable, make_folder, names_file, read_profile, write_file


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


def test_a_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    check_folder(folder)
    assert not folder.parent.exists()
    make_folder(folder)
    make_folder(folder)
    assert folder.is_dir()


@pytest.mark.parametrize("below", ["", "/b/c"])
def test_below_a_file_there_is_no_folder(tmp_path: Path, below: str) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match=r"^cannot write to .*: .*/a is a file; choose another folder$"):
        check_folder(tmp_path / f"a{below}")
    with pytest.raises(InputError, match=r"^cannot write to .*; choose another folder$"):
        make_folder(tmp_path / f"a{below}")


@pytest.mark.parametrize("word", ["5," * 2000, "a\0b", "missing"])
def test_words_that_no_file_can_have_are_no_file_s_name(word: str) -> None:
    assert not names_file(word)


def test_no_name_is_no_file() -> None:
    """As where a shell's variable is not set."""
    with pytest.raises(InputError, match=r"^the name of a file to write is empty; choose one$"):
        check_writable("")


def test_a_packed_profile_is_unpacked_up_to_a_limit(tmp_path: Path) -> None:
    """The limit holds for what it unpacks to: a file of 1 kB may hold 1 MiB of zeros."""
    path = tmp_path / "run.json"
    path.write_bytes(gzip.compress(bytes(1 << 20)))
    assert path.stat().st_size < 2000
    assert read_profile(path) == bytes(1 << 20)
    with pytest.raises(InputError, match=r"^.*run\.json unpacks to more than 0\.000488281 GiB; use less of it$"):
        read_profile(path, most_bytes=1 << 19)
