"""Reads YAML, with PyYAML where it is installed: launchers' tools need it, presim does not."""

from __future__ import annotations

import importlib
from typing import Any

from presim.errors import InputError
from presim.system.files.file_limits import MOST_DEPTH, MOST_YAML_BYTES, PYTHON_ADVICE, FormatError, check_values


def decode_yaml(text: str) -> Any:
    """The value of a YAML document, of plain types only.

    Raises:
        FormatError: it is no YAML, too long, nested too deep, or a number is beyond its limit.
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
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(str(error).replace("\n", " ").partition(PYTHON_ADVICE)[0]) from error
    check_values(document)
    return document
