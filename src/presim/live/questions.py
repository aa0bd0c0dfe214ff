"""Protocol of the emulated device's queries while a script waits: shim/core/simulator.h in Python."""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

_QUESTION = struct.Struct("<qQqqq")
_ANSWER = struct.Struct("<qqqqqd")


class Ask(enum.IntEnum):
    """Kinds of questions; ``first`` and ``second`` mean what each member says."""

    SYNC = 1  # the host waits; first: index of its record
    NOW = 2  # where does the host stand?
    EVENT = 3  # has the recording `first` ended?
    STREAM = 4  # has everything on stream `first` ended?
    ELAPSED = 5  # ns between the ends of the recordings `first` and `second`


class Status(enum.IntEnum):
    """The first word of an answer."""

    YES = 0
    NOT_YET = 1
    NOBODY = 2  # nobody can say


class Question(NamedTuple):
    """One question of one rank."""

    ask: Ask
    records: int  # in the rank's log by then
    cpu_ns: int  # CPU time of its process, on the clock of the log
    first: int = 0
    second: int = 0

    @classmethod
    def unpack(cls, message: bytes) -> Question:
        """From the bytes of a message; ``struct.error`` or ``ValueError`` where it is none."""
        ask, *rest = _QUESTION.unpack(message)
        return cls(Ask(ask), *rest)

    def pack(self) -> bytes:
        """As the emulated device sends it."""
        return _QUESTION.pack(*self)


class Answer(NamedTuple):
    """What the simulation says."""

    status: Status
    host_ns: int = 0  # where the host stands at the question's `cpu_ns`; of a SYNC: when its wait is over
    value: int = 0  # ns (ELAPSED)
    room: int = 0  # launches until a stream may be full
    ended: int = 0  # all recordings with a lower serial have ended
    pace: float = 1.0  # host time over CPU time until the next answer

    @classmethod
    def unpack(cls, message: bytes) -> Answer:
        """From the bytes of a message."""
        status, *rest = _ANSWER.unpack(message)
        return cls(Status(status), *rest)

    def pack(self) -> bytes:
        """As the emulated device reads it."""
        return _ANSWER.pack(*self)


QUESTION_BYTES = _QUESTION.size
