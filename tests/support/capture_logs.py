"""Capture logs made by hand, in memory or as the files that the emulated device writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from presim.capture.reading import log as logs
from presim.capture.reading.log import Log
from presim.trace.schema import Kind, Phase


class LogBuilder:
    """Appends records; texts are interned as the recorder does."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.notes: list[str] = []
        self.calls: dict[str, int] = {}
        self._records: list[dict[str, int]] = []

    def text(self, text: str) -> int:
        """Id of a descriptor."""
        return self.texts.setdefault(text, len(self.texts))

    def record(
        self,
        kind: Kind,
        *,
        work: str = "",
        op: str = "",
        scope: str = "",
        phase: Phase = Phase.OTHER,
        **numbers: int,
    ) -> int:
        """Append a record and return its index; ``numbers`` are its other fields."""
        texts = {name: self.text(text) if text else -1 for name, text in (("work", work), ("op", op), ("scope", scope))}
        self._records.append({"kind": int(kind), "phase": int(phase), **texts, **numbers})
        return len(self._records) - 1

    def claim(self, index: int, op: str, call: int = 0) -> None:
        """The operator of a record has ended; ``call``: its serial."""
        self._records[index] |= {"op": self.text(op), "value": call}

    def records(self) -> np.ndarray:
        """All records so far."""
        result = np.zeros(len(self._records), logs.RECORD)
        for index, fields in enumerate(self._records):
            for name, value in fields.items():
                result[index][name] = value
        return result

    def log(self) -> Log:
        """What `read_log` would give."""
        return Log(self.records(), tuple(self.texts), dict(self.calls), tuple(self.notes), disk_full=False)

    def write(self, folder: Path, *, room: int = 0) -> None:
        """The files as a process leaves them; ``room``: bytes mapped beyond what was written."""
        header = logs.MAGIC + np.array([logs.VERSION, logs.RECORD.itemsize], "<u4").tobytes()
        header += np.array([len(self._records), 0], "<u8").tobytes()
        data = header.ljust(logs.HEADER_BYTES, b"\0") + self.records().tobytes() + bytes(room)
        (folder / "log.bin").write_bytes(data)
        (folder / "work.tsv").write_bytes("".join(f"{text}\n" for text in self.texts).encode() + bytes(room))
        (folder / "calls.tsv").write_text("".join(f"{name}\t{count}\n" for name, count in self.calls.items()))
        (folder / "notes.tsv").write_text("".join(f"{note}\n" for note in self.notes))
