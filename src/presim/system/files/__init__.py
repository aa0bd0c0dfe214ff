"""Everything that presim reads from files and writes to them: one reader with limits per format, and one writer.

::

    read      bytes and text of a file, unpacked where gzip packed it
    json      JSON, JSON lines and MessagePack
    toml, yaml, xml
    csv       tables with a header
    parquet   tables of columns
    convert   decoded documents to structs
    write     files whole or not at all; folders

A reader of a format raises `FormatError` with the reason in one line; who calls it knows what the file is for, and
makes a sentence of it. No other module decodes these formats (``tests/unit/system/files/test_only_here.py``).
"""

from __future__ import annotations

from presim.system.files.convert import convert, to_type
from presim.system.files.csv import decode_csv, encode_csv, encode_csv_rows
from presim.system.files.file_limits import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_DIGITS,
    MOST_FLOPS,
    MOST_INTEGER,
    MOST_TEXT_BYTES,
    MOST_UNSIGNED,
    FormatError,
    shortened,
)
from presim.system.files.json import (
    decode_foreign_json,
    decode_json,
    decode_json_lines,
    decode_messagepack,
    decode_settings_json,
)
from presim.system.files.parquet import column_of, encode_parquet, numbers_of, read_parquet
from presim.system.files.read import (
    digest_of,
    first_bytes,
    names_file,
    names_folder,
    read_bytes,
    read_profile,
    read_text,
    read_unpacked,
    version,
)
from presim.system.files.toml import decode_toml
from presim.system.files.write import check_apart, check_folder, check_writable, make_folder, packed, write_file
from presim.system.files.xml import decode_xml
from presim.system.files.yaml import decode_yaml

__all__ = [
    "MOST_BYTES",
    "MOST_DEPTH",
    "MOST_DIGITS",
    "MOST_FLOPS",
    "MOST_INTEGER",
    "MOST_TEXT_BYTES",
    "MOST_UNSIGNED",
    "FormatError",
    "check_apart",
    "check_folder",
    "check_writable",
    "column_of",
    "convert",
    "decode_csv",
    "decode_foreign_json",
    "decode_json",
    "decode_json_lines",
    "decode_messagepack",
    "decode_settings_json",
    "decode_toml",
    "decode_xml",
    "decode_yaml",
    "digest_of",
    "encode_csv",
    "encode_csv_rows",
    "encode_parquet",
    "first_bytes",
    "make_folder",
    "names_file",
    "names_folder",
    "numbers_of",
    "packed",
    "read_bytes",
    "read_parquet",
    "read_profile",
    "read_text",
    "read_unpacked",
    "shortened",
    "to_type",
    "version",
    "write_file",
]
