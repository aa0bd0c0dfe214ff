"""Readers refuse what exhausts a decoder: nesting, digits, quotes without an end."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.system.files import (
    MOST_DEPTH,
    MOST_UNSIGNED,
    FormatError,
    decode_csv,
    decode_foreign_json,
    decode_json,
    decode_json_lines,
    decode_messagepack,
    decode_toml,
    decode_yaml,
    encode_csv,
    encode_parquet,
    read_bytes,
    read_parquet,
    read_text,
    shortened,
    structure,
)

_BEYOND = f"is beyond {2**63 - 1}"
_LONG = "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits"
REFUSED = (  # reader, text, message
    (decode_json, "[" * 20_000, "line 1, byte 100 is nested deeper than 100 levels"),
    (decode_json, '{"a":' * 101 + "1" + "}" * 101, "line 1, byte 500 is nested deeper than 100 levels"),
    (decode_json, '{\n"n": 9223372036854775808}', f"line 2, byte 7 has the integer {2**63}, which {_BEYOND}"),
    (decode_json, "[-9223372036854775809]", f"line 1, byte 1 has the integer {-(2**63) - 1}, which {_BEYOND}"),
    (decode_json, f"[{'7' * 5000}]", "line 1, byte 1 has an integer of 5,000 digits; at most 20 are read"),
    (decode_foreign_json, f'{{"id": {"1" * 26}}}', "line 1, byte 7 has an integer of 26 digits; at most 20 are read"),
    (decode_foreign_json, "{'a': 1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    (decode_toml, "a = " + "[" * 20_000, "more than 100 levels (at line 1)"),
    (decode_toml, "\n" + ".".join("k" * 50_000) + " = 1", "a key of more than 100 parts (at line 2)"),
    (decode_toml, "size = " + "8" * 400, "size is a number beyond 9,223,372,036,854,775,807"),
    (decode_toml, "size = " + "8" * 5000, _LONG),
    (decode_yaml, "n: " + "4" * 5000, _LONG),
    (decode_toml, "rate = nan", "rate is nan, which is no quantity"),
    (decode_toml, "at = [1, -inf]", "at is -inf, which is no quantity"),
    (decode_yaml, "a: " + "[" * 20_000, "more than 100 levels (at line 1)"),
    (decode_yaml, "- " * 500 + "x", "more than 100 levels (at line 1)"),
    (decode_yaml, "n: " + "4" * 300, "n is a number beyond 9,223,372,036,854,775,807"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "text", "message"), REFUSED, ids=[f"{reader.__name__} {text[:12]!r}" for reader, text, _ in REFUSED]
)
def test_what_exhausts_a_reader_is_refused_with_its_place(
    reader: Callable[[str], object], text: str, message: str
) -> None:
    with pytest.raises(FormatError) as refused:
        reader(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' + "[{" * 500 + '"}',  # brackets of a string
        r'{"a\\": "\"[[' + "[" * 200 + '"}',  # behind escaped quotes
        "[" * MOST_DEPTH + "]" * MOST_DEPTH,
        "[" + ", ".join(["[]"] * 10_000) + "]",
        '["99999999999999999999999999", 0.12345678901234567890123, 12345678901234567890e3]',
        "[9223372036854775807, -9223372036854775808]",
        '{"long": "' + "x" * 3_000_000 + '", "n": [1, 2]}',  # over several parts of the scan
    ],
)
def test_what_is_well_within_the_limits_is_read(text: str) -> None:
    assert decode_json(text) == json.loads(text)


def test_many_long_fractions_are_checked_in_one_pass() -> None:
    """Where the quotes of a part are is found once, not once for each number."""
    text = "[" + ",".join(["[0.1234567890123456789]"] * 40_000) + "]"
    begin = time.process_time()
    structure.check_structure(text.encode())
    assert time.process_time() - begin < 5  # once for each number, it took a minute


def test_a_hash_without_a_sign_is_read_where_other_tools_write_it() -> None:
    assert decode_json(f"[{MOST_UNSIGNED}]", most_integer=MOST_UNSIGNED) == [MOST_UNSIGNED]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(_JSON, st.integers(20, 64))
def test_every_json_is_read_as_it_was_written(value: object, chunk_bytes: int) -> None:
    """Whatever stands in its strings, and wherever the scan's parts end."""
    text = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structure, "_CHUNK_BYTES", chunk_bytes)
        patched.setattr(structure, "_SMALL", 0)
        assert decode_json(text) == decode_foreign_json(text) == value


@given(st.integers(1, 300), st.integers(0, 2**32))
def test_the_depth_is_that_of_the_brackets_outside_strings(levels: int, seed: int) -> None:
    chance = random.Random(seed)
    text = '"]"'
    for _ in range(levels):
        text = f'["]]\\"", {text}]' if chance.random() < 0.5 else f'{{"}}}}": {text}}}'
    if levels <= MOST_DEPTH:
        decode_json(text)
    else:
        with pytest.raises(FormatError, match="is nested deeper than 100 levels"):
            decode_json(text)


def test_messagepack_that_nests_is_refused() -> None:
    with pytest.raises(FormatError, match="nested deeper than 100 levels"):
        decode_messagepack(b"\x91" * 20_000 + b"\x00", object)


def test_a_bomb_of_aliases_is_not_expanded() -> None:
    text = "a0: &a0 [x, x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    begin = time.monotonic()
    with pytest.raises(FormatError, match=r"^it holds more than 1,000,000 values$"):
        decode_yaml(text)
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a,b\n1,"2\n3,4\n', "line 3: a quote is not closed"),
        ("a\n" + "x" * (1 << 20) + "y\n", "line 2: field larger than field limit (1048576)"),
        ('a\n"x"y\n', "line 2: ',' expected after '\"'"),
    ],
)
def test_a_table_with_a_cell_without_an_end_is_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError) as refused:
        list(decode_csv(text))
    assert str(refused.value) == message


def test_a_cell_of_200_000_characters_is_read_and_missing_cells_are_empty() -> None:
    assert list(decode_csv("a,b\n" + "x" * 200_000 + "\n\n1,2,3\n")) == [
        {"a": "x" * 200_000, "b": ""},
        {"a": "1", "b": "2"},
    ]
    with pytest.raises(FormatError, match=r"^no column 'c'$"):
        list(decode_csv("a,b\n", ["a", "c"]))


@given(st.lists(st.fixed_dictionaries({"a": st.text(max_size=9), "b": st.text(max_size=9)}), max_size=5))
def test_a_table_is_read_as_it_was_written(rows: list[dict[str, str]]) -> None:
    rows = [{name: cell.replace("\r", "") for name, cell in row.items()} for row in rows]
    assert list(decode_csv(encode_csv(["a", "b"], rows).decode("utf-8", "surrogatepass"))) == rows


def test_lines_that_are_no_json_are_told_beside_those_that_are() -> None:
    first, second, third = decode_json_lines('{"a": 1}\n\n{"a": tru\n[]\n')
    assert (first, third) == ({"a": 1}, [])
    assert isinstance(second, FormatError)


def test_parquet_that_says_it_has_too_many_cells_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_parquet(pa.table({"a": list(range(100)), "b": [0] * 100}), {"note": "x"})
    table, metadata = read_parquet(data)
    assert (table["a"].to_pylist(), metadata[b"note"]) == (list(range(100)), b"x")
    monkeypatch.setattr("presim.system.files.parquet.MOST_CELLS", 199)
    with pytest.raises(FormatError, match=r"^it says that it has 200 cells, more than 199$"):
        read_parquet(data)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "No such file or directory"),
        (".", "Is a directory"),
        ("a\0b", "its name holds a null byte"),
        ("n" * 300, "File name too long"),
        ("loop", "Too many levels of symbolic links"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason_and_the_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        read_bytes(name, "name another")
    assert str(refused.value) == f"cannot read {shortened(name)}: {reason}; name another"


def test_a_device_without_an_end_and_a_large_file_are_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2000))
    for path in (Path("/dev/zero"), tmp_path / "large"):
        with pytest.raises(InputError, match=r"has more than 1,000 bytes, the most that is read; name another$"):
            read_bytes(path, "name another", most_bytes=1000)


def test_a_device_is_read_no_further_than_a_terminal_would_go() -> None:
    """Whatever the reader takes of a file: 8 GiB of zeros do not fit into every machine."""
    with pytest.raises(InputError, match=r"/dev/zero has more than 67,108,864 bytes, the most that is read; give a f"):
        read_bytes("/dev/zero", "give a file")


def test_text_has_line_ends_of_one_kind_and_no_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbfa\r\nb\rc")
    assert read_text(tmp_path / "t", "") == "a\nb\nc"
    (tmp_path / "t").write_bytes(b"a\xffb")
    with pytest.raises(InputError, match=r"t is not UTF-8 text \(byte 1\); save it anew$"):
        read_text(tmp_path / "t", "save it anew")
