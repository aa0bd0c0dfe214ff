"""Follow a capture log while it is written.

The writing process maps the log into memory, so a reader sees every record counted by the header. Texts and notes are
complete lines before their ids are used.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.log import HEADER_BYTES, RECORD, Descriptor, parse

_COUNT_AT = 16  # offset of Header.count


class LogTail:
    """The log in a directory; the files need not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.descriptors: list[Descriptor] = []
        self.notes: list[str] = []
        self.read_count = 0  # records returned by `read`
        self._files: dict[str, int] = {}
        self._offsets = {"work.tsv": 0, "notes.tsv": 0}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def count(self) -> int:
        """Number of records in the log now."""
        file = self._open("log.bin")
        header = os.pread(file, 8, _COUNT_AT) if file is not None else b""
        return int.from_bytes(header, "little") if len(header) == 8 else 0

    def read(self, count: int) -> NDArray[np.void]:
        """Return the records up to ``count`` that were not returned before, and read the texts that they refer to."""
        records, texts = self.read_texts(count)
        self.descriptors += map(parse, texts)
        self.notes += self._lines("notes.tsv")
        return records

    def read_texts(self, count: int) -> tuple[NDArray[np.void], list[str]]:
        """Return the same, and the texts of descriptors that were not returned before."""
        records = self.peek(count)
        self.read_count += len(records)
        return records, self._lines("work.tsv")

    def peek(self, count: int) -> NDArray[np.void]:
        """Return the same records without consuming them."""
        size = (count - self.read_count) * RECORD.itemsize
        file = self._open("log.bin")
        if file is None or size <= 0:
            return np.zeros(0, RECORD)
        return np.frombuffer(os.pread(file, size, HEADER_BYTES + self.read_count * RECORD.itemsize), RECORD)

    def _open(self, name: str) -> int | None:
        if name not in self._files:
            try:
                self._files[name] = os.open(self.directory / name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return None
        return self._files[name]

    def _lines(self, name: str) -> list[str]:
        file = self._open(name)
        if file is None:
            return []
        text = b""
        while part := os.pread(file, 1 << 20, self._offsets[name] + len(text)):
            text += part
        complete_lines = text[: text.rfind(b"\n") + 1]
        self._offsets[name] += len(complete_lines)
        return complete_lines.decode(errors="replace").split("\n")[:-1]
