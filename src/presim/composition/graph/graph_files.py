"""Graphs as files: MessagePack, or JSON where the name ends in ``.json``."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from presim.composition.graph.graph_schema import MAGIC, VERSION, OperatorGraph
from presim.composition.graph.references import missing
from presim.errors import InputError
from presim.system.files import FormatError, decode_json, decode_messagepack, read_bytes, write_file
from presim.system.files.field_bounds import Version


class _Header(msgspec.Struct, frozen=True):
    magic: str
    version: Version


def save(graph: OperatorGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph whole or not at all."""
    as_json = Path(path).suffix == ".json"
    write_file(path, msgspec.json.encode(graph, order="sorted") if as_json else msgspec.msgpack.encode(graph))


def load(path: str | os.PathLike[str]) -> OperatorGraph:
    """Read a graph.

    Raises:
        InputError: there is no such file, it is no graph, of a newer format, or damaged.
    """
    data = read_bytes(path, "make a graph with `presim graph`")
    decode = decode_json if data[:1] == b"{" else decode_messagepack
    try:
        header = decode(data, _Header)
    except FormatError as error:
        raise InputError(f"{path} is not a graph of presim's; make one with `presim graph MODEL --out FILE`") from error
    if header.magic != MAGIC:
        raise InputError(f"{path} is not a graph of presim's (magic {header.magic!r}); make one with `presim graph`")
    if header.version > VERSION:
        raise InputError(
            f"{path} was written by a newer presim (format {header.version}, this one reads {VERSION}); upgrade presim"
        )
    try:
        graph: OperatorGraph = decode(data, OperatorGraph)
    except FormatError as error:
        raise InputError(f"{path} is damaged; make it again with `presim graph`") from error
    if problem := next(missing(graph), ""):
        raise InputError(f"{path} is damaged: {problem}; make it again with `presim graph`")
    return graph
