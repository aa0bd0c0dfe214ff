"""Converts decoded documents to structs, whose fields have bounds (`presim.system.files.field_bounds`)."""

from __future__ import annotations

import re
import threading
from typing import Any, TypeVar, overload

import msgspec

from presim.system.files.file_limits import FormatError, shortened

_Value = TypeVar("_Value")
# msgspec 0.22 crashes where two threads convert to a type for the first time at once: while the first builds what it
# knows of the type, the second reads it half built. msgspec holds the interpreter's lock, so that threads lose no time.
CONVERTING = threading.RLock()
_BOUND = re.compile(r"(?P<reason>Expected `(?:int|float)` [<>]=? .*?) - at `\$(?P<path>[^`]*)`")
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]")


@overload
def convert(document: Any, type: type[_Value], *, strict: bool = ...) -> _Value: ...
@overload
def convert(document: Any, type: Any, *, strict: bool = ...) -> Any: ...
def convert(document: Any, type: Any, *, strict: bool = True) -> Any:
    """A document as a type. Its keys are texts, also of whole numbers; unless ``strict``, values may be, as in tables.

    Raises:
        FormatError: a part is of another type, or a number is outside of its bounds; the message has the number.
    """
    try:
        with CONVERTING:
            return msgspec.convert(document, type, strict=strict, str_keys=True)
    except (msgspec.ValidationError, TypeError) as error:  # a TypeError: a key that is no name of a field
        raise FormatError(explain(error, document)) from error


@overload
def to_type(document: Any, type: type[_Value]) -> _Value: ...
@overload
def to_type(document: Any, type: Any) -> Any: ...
def to_type(document: Any, type: Any) -> Any:
    """A document as a type, for callers that word msgspec's own errors or read presim's own data.

    Raises:
        msgspec.ValidationError: a part is of another type, or a number is outside of its bounds.
    """
    with CONVERTING:
        return msgspec.convert(document, type)


def explain(error: Exception, document: Any) -> str:
    """The message of msgspec's error, with the number that is outside of its bounds.

    >>> explain(msgspec.ValidationError("Expected `int` >= 1 - at `$.a[1]`"), {"a": [1, 0]})
    'Expected `int` >= 1, not 0 - at `$.a[1]`'
    """
    message = str(error).partition("\n")[0]
    match = _BOUND.match(message)
    value = _value_at(document, match["path"]) if match else None
    if match is None or not isinstance(value, int | float | str):
        return message
    return f"{match['reason']}, not {shortened(value)} - at `${match['path']}`"


def _value_at(document: Any, path: str) -> Any:
    """The value at a path as msgspec writes it; None where the path has a part without a name, as `[...]`."""
    value, end = document, 0
    for step in _STEP.finditer(path):
        if step.start() != end:
            return None
        end = step.end()
        try:
            value = value[step["key"]] if step["key"] else value[int(step["index"])]
        except (KeyError, IndexError, TypeError):
            return None
    return value if end == len(path) else None
