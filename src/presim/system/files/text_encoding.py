"""Decodes text by its byte order mark: UTF-8, and the UTF-16 and UTF-32 that Windows' editors and shells write."""

from __future__ import annotations

import codecs

# That of UTF-32 LE begins as that of UTF-16 LE does.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def text_of(content: bytes, errors: str = "strict") -> str:
    """The text of bytes in the encoding that their byte order mark names, UTF-8 without one.

    Raises:
        UnicodeDecodeError: they are not of that encoding, and ``errors`` does not replace what is not.
    """
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, errors)
    return content.decode("utf-8", errors)


def utf8_of(content: bytes) -> bytes:
    """The same text in UTF-8 without a byte order mark; what has none is returned as it is.

    Raises:
        UnicodeDecodeError: it is not of the encoding that its mark names.
    """
    if content.startswith(codecs.BOM_UTF8):
        return content[len(codecs.BOM_UTF8) :]
    return text_of(content).encode() if content.startswith(tuple(mark for mark, _ in _MARKS)) else content
