"""Read the capture log written by the shim; its layout is drawn in shim/core/recorder.h."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.errors import CaptureError

MAGIC = b"PRESIMLG"
VERSION = 1
HEADER_BYTES = 64
RECORD = np.dtype(
    [
        ("cpu_ns", "<i8"),
        ("object", "<i8"),
        ("value", "<i8"),
        ("work", "<i4"),
        ("op", "<i4"),
        ("scope", "<i4"),
        ("stream", "<u2"),
        ("kind", "u1"),
        ("phase", "u1"),
        ("tag", "u1"),
        ("pad", "V7"),
    ]
)
UNCLAIMED = -2  # `op` of a record whose operator has not ended

_START = MAGIC + np.array([VERSION, RECORD.itemsize], "<u4").tobytes()


@dataclasses.dataclass(frozen=True)
class Descriptor:
    """One line of interned text: ``family key=value key=value``."""

    family: str
    fields: dict[str, str]

    def number(self, key: str, default: int = 0) -> int:
        """A field as an integer."""
        return int(self.fields.get(key, default))

    def numbers(self, key: str) -> tuple[int, ...]:
        """A field as comma-separated integers."""
        text = self.fields.get(key, "")
        return tuple(int(part) for part in text.split(",")) if text else ()


@dataclasses.dataclass(frozen=True)
class Log:
    """The log of one process."""

    records: NDArray[np.void]
    texts: tuple[str, ...]
    calls: dict[str, int]  # calls of library functions without semantics in the emulation, by name
    notes: tuple[str, ...]
    disk_full: bool

    @cached_property
    def descriptors(self) -> tuple[Descriptor, ...]:
        """The parsed interned texts."""
        return tuple(parse(text) for text in self.texts)


def parse(text: str) -> Descriptor:
    """Parse one descriptor; values contain no blanks."""
    family, _, assignments = text.partition(" ")
    fields = dict(part.split("=", 1) for part in assignments.split(" ") if "=" in part)
    return Descriptor(family, fields)


def read_log(directory: Path) -> Log:
    """Read the log in a directory.

    Raises:
        CaptureError: the log is missing, or of another version.
    """
    path = directory / "log.bin"
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        advice = "run `presim doctor` to see what is missing"
        raise CaptureError(f"the emulated device wrote no log ({error}); {advice}") from error
    if len(header) < HEADER_BYTES or header[:16] != _START:
        raise CaptureError(f"{path} is not a capture log of version {VERSION}; rebuild the shim with `make shim`")
    count, full = (int(value) for value in np.frombuffer(header[16:32], "<u8"))
    records = np.fromfile(path, RECORD, count, offset=HEADER_BYTES)
    return Log(
        records=records,
        texts=tuple(_lines(directory / "work.tsv")),
        calls=_counts(directory / "calls.tsv"),
        notes=tuple(_lines(directory / "notes.tsv")),
        disk_full=bool(full),
    )


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = path.read_bytes().rstrip(b"\0").decode(errors="replace")
    return text.split("\n")[: text.count("\n")]  # an unterminated last line is incomplete


def _counts(path: Path) -> dict[str, int]:
    pairs = (line.split("\t") for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
