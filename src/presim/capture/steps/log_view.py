"""The process's own capture log, read while it grows: the number of its records, and digests of the work in them."""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path

from presim.capture.reading.log import HEADER_BYTES, RECORD
from presim.trace.schema import Kind

_COUNT = slice(16, 24)  # of Header.count, see shim/core/recorder.h


class LogView:
    """The log in a directory; it need not exist yet."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "log.bin"
        self._header: mmap.mmap | None = None

    def count(self) -> int:
        """Number of records in the log now."""
        if self._header is None:
            self._header = self._open()
        return int.from_bytes(self._header[_COUNT], "little") if self._header is not None else 0

    def digest(self, start: int, stop: int) -> bytes:
        """A digest of the device work and the collectives of some records: equal if they launch the same."""
        import numpy as np

        size = (stop - start) * RECORD.itemsize
        with self._path.open("rb") as file:
            records = np.frombuffer(os.pread(file.fileno(), size, HEADER_BYTES + start * RECORD.itemsize), RECORD)
        launches = records["work"][records["kind"] <= Kind.COLLECTIVE]
        return hashlib.blake2b(launches.tobytes(), digest_size=16).digest()

    def _open(self) -> mmap.mmap | None:
        try:
            with self._path.open("rb") as file:
                return mmap.mmap(file.fileno(), HEADER_BYTES, prot=mmap.PROT_READ)
        except (OSError, ValueError):  # not there yet, or still empty
            return None
