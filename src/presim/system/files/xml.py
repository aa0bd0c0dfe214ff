"""Reads XML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from presim.system.files.file_limits import MOST_DEPTH, FormatError

if TYPE_CHECKING:
    from xml.etree import ElementTree


def decode_xml(text: str) -> ElementTree.Element:
    """The root element of an XML text. Entities of its own are refused, since they may refer to each other.

    Raises:
        FormatError: it is no XML, nested too deep, or declares entities.
    """
    from xml.etree import ElementTree  # which few verbs read

    if "<!ENTITY" in text:
        raise FormatError("it declares entities")
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    root: ElementTree.Element | None = None
    depth = 0
    try:
        parser.feed(text)
        parser.close()
        for event, element in parser.read_events():
            root = element if root is None else root
            depth += 1 if event == "start" else -1
            if depth > MOST_DEPTH:
                raise FormatError(f"it is nested deeper than {MOST_DEPTH} levels")
    except (ElementTree.ParseError, ValueError) as error:
        raise FormatError(str(error)) from error
    if root is None:
        raise FormatError("it has no element")
    return root
