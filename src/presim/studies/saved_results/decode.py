"""Decodes the files that verbs write into JSON: results, tables of `presim validate`, and graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from presim.errors import InputError
from presim.system.files import MOST_FLOPS, FormatError, decode_csv, decode_json, read_unpacked

_REMEDY = "name a file that --json wrote, or a saved job"
_DEPTH, _SEQUENCE = 3, 4096  # as the defaults of `presim graph show`


def decode(path: Path) -> Any:
    """The JSON of a file; of a table its ``path`` and ``rows``, of a graph its modules as `presim graph show` has them.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    data = read_unpacked(path, _REMEDY)
    if data.lstrip()[:9].lower() in (b"<!doctype", b"<html"):
        raise InputError(f"{path} is an HTML page; open it in a browser, or name the file that --json wrote")
    if rows := _rows(data):
        return {"path": str(path), "rows": rows, "schema": "presim-validation/1"}
    if b"presim-graph" in data[-4096:] + data[:4096] and b"presim-graph-summary" not in data:
        return _graph(path)
    try:
        document = decode_json(data, most_integer=MOST_FLOPS)
    except FormatError as error:
        raise InputError(f"{path} is no JSON ({error}); {_REMEDY}") from error
    if isinstance(document, dict) and document.get("magic") == "presim-trace":
        raise InputError(f"{path} is part of a saved job; name its folder, {path.parent}")
    return document


def _rows(data: bytes) -> list[dict[str, str]]:
    """The rows of a table of `presim validate`; none where the columns are others."""
    names = data.partition(b"\n")[0].decode(errors="replace").strip().split(",")
    if "reason" not in names or not any(name.startswith("predicted_") for name in names):
        return []
    try:
        return list(decode_csv(data.decode()))
    except (FormatError, UnicodeDecodeError):
        return []


def _graph(path: Path) -> dict[str, Any]:
    from presim.composition.graph import graph_files
    from presim.composition.graph.graph_summary import GraphSummary, by_module

    summary = GraphSummary(by_module(graph_files.load(path), 1, _SEQUENCE, _DEPTH))
    content: dict[str, Any] = msgspec.to_builtins(summary)
    return content
