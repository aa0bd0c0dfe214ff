"""Reads YAML, with PyYAML where it is installed: launchers' tools need it, presim does not."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from presim.errors import InputError
from presim.system.files.file_limits import (
    MOST_DEPTH,
    MOST_YAML_BYTES,
    PYTHON_ADVICE,
    FormatError,
    check_values,
    shortened,
)

_MERGE = "tag:yaml.org,2002:merge"  # `<<`, which may stand several times


def decode_yaml(text: str) -> Any:
    """The value of a YAML document, of plain types only.

    Raises:
        FormatError: it is no YAML, too long, nested too deep, a mapping has a key twice, or a number is
            beyond its limit.
        InputError: PyYAML is not installed.
    """
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise InputError("a YAML file is read with PyYAML: pip install pyyaml") from error
    if len(text) > MOST_YAML_BYTES:
        raise FormatError(f"{len(text):,} characters, more than {MOST_YAML_BYTES:,}")
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                line = event.start_mark.line + 1
                raise FormatError(f"more than {MOST_DEPTH} levels (at line {line})")
        for node in _nodes(yaml.compose(text, Loader=yaml.SafeLoader)):
            _check_keys(node)
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(str(error).replace("\n", " ").partition(PYTHON_ADVICE)[0]) from error
    check_values(document)
    return document


def _nodes(root: Any) -> Iterator[Any]:
    """A document's node and all below it, each once: an anchor may be named again and again."""
    waiting, seen = [root] if root is not None else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if node.id == "mapping":
            waiting += [inner for pair in node.value for inner in pair]
        elif node.id == "sequence":
            waiting += node.value


def _check_keys(node: Any) -> None:
    """Check the keys of a mapping: PyYAML takes the last of equal ones without a word."""
    lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value if node.id == "mapping" else ():
        if key.id != "scalar" or key.tag == _MERGE:
            continue
        line = key.start_mark.line + 1
        first_line = lines.setdefault((key.tag, key.value), line)
        if first_line != line:
            raise FormatError(f"the key {shortened(key.value)!r} stands in lines {first_line} and {line}")
