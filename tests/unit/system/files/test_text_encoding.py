"""Text and tables are read in the encodings and forms that editors, shells and spreadsheets write."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.system.files import FormatError, decode_csv, decode_foreign_json, decode_json, read_text

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32")  # the last two with a byte order mark
TEXT = '{"name": "Köln", "nodes": 2}\n'


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("is_packed", [False, True])
def test_text_is_decoded_by_its_byte_order_mark(tmp_path: Path, encoding: str, is_packed: bool) -> None:
    """Windows' PowerShell writes UTF-16 with `>`; request traces are published packed."""
    content = TEXT.replace("\n", "\r\n").encode(encoding)
    (tmp_path / "a.txt").write_bytes(gzip.compress(content) if is_packed else content)
    assert read_text(tmp_path / "a.txt", "name another file") == TEXT


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_is_decoded_by_its_byte_order_mark(encoding: str) -> None:
    for decode in (decode_json, decode_foreign_json):
        assert decode(TEXT.encode(encoding)) == {"name": "Köln", "nodes": 2}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("Köln".encode("latin-1"), r"a\.txt is not UTF-8 text \(byte 1\); name another file$"),
        ("Köln".encode("utf-16")[:-1], r"a\.txt is not UTF-16-LE text \(byte 6\); name another file$"),
        (
            gzip.compress(b"nodes", mtime=0)[:-4],
            r"a\.txt is cut short or damaged \(\d+ bytes of gzip: .*\); copy it again$",
        ),
    ],
)
def test_other_bytes_are_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        read_text(tmp_path / "a.txt", "name another file")
    with pytest.raises(FormatError):
        decode_json(content)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_tables_are_read_with_the_delimiters_of_spreadsheets(mark: str) -> None:
    text = "\n a, b \n\n1,2\n3\n".replace(",", mark)
    assert list(decode_csv(text, ["a", "b"])) == [{"a": "1", "b": "2"}, {"a": "3", "b": ""}]


def test_a_column_that_is_there_twice_is_refused() -> None:
    """One of the two would be dropped without a word."""
    with pytest.raises(FormatError, match=r"^2 columns 'a'$"):
        list(decode_csv("a,b,a\n1,2,3\n", ["a"]))
    assert list(decode_csv("a,b,b\n1,2,3\n", ["a"])) == [{"a": "1", "b": "3"}]
