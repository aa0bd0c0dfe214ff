"""Maps event recordings of running ranks to ops; events may be queried at any time."""

from __future__ import annotations

from array import array


class Recordings:
    """Ops by the serials of recordings, which the emulated device counts from 1: 8 bytes for each."""

    def __init__(self) -> None:
        self._ops = array("q", [-1])

    def __setitem__(self, serial: int, op: int) -> None:
        if serial >= len(self._ops):
            self._ops.extend([-1] * (serial + 1 - len(self._ops)))
        self._ops[serial] = op

    def get(self, serial: int) -> int | None:
        """The op of a recording; None if unknown."""
        op = self._ops[serial] if 0 <= serial < len(self._ops) else -1
        return op if op >= 0 else None

    def __getitem__(self, serial: int) -> int:
        return self._ops[serial]

    def __contains__(self, serial: int) -> bool:
        return self.get(serial) is not None
