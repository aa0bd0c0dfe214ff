"""Protocol of the emulated device's queries while a script waits: shim/core/simulator.h in Python."""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

_QUESTION = struct.Struct("<qQqqq")
_ANSWER = struct.Struct("<qqqqqdqq")


class Ask(enum.IntEnum):
    """Kinds of questions, with the meaning of ``first`` and ``second``."""

    SYNC = 1  # the host waits; first: index of its record
    NOW = 2  # what time is it on the host?
    EVENT = 3  # has the recording `first` ended? second: how many queries came before
    STREAM = 4  # has everything on stream `first` ended? second: the same
    ELAPSED = 5  # ns between the ends of the recordings `first` and `second`


class Status(enum.IntEnum):
    """The first word of an answer."""

    YES = 0
    NOT_YET = 1
    NOBODY = 2  # unknown


class LiveQuestion(NamedTuple):
    """One question of one rank."""

    ask: Ask
    records: int  # in the rank's log by then
    cpu_ns: int  # CPU time of its process, on the clock of the log
    first: int = 0
    second: int = 0

    @classmethod
    def unpack(cls, message: bytes) -> LiveQuestion:
        """Decode a message.

        Raises:
            struct.error, ValueError: it is not a question.
        """
        ask, *fields = _QUESTION.unpack(message)
        return cls(Ask(ask), *fields)

    def pack(self) -> bytes:
        """Encode for the message that the emulated device sends."""
        return _QUESTION.pack(*self)


class LiveAnswer(NamedTuple):
    """The answer of the simulation."""

    status: Status
    host_ns: int = 0  # the host's time at the question's `cpu_ns`; for SYNC: the end of its wait
    value: int = 0  # ns; ELAPSED: the duration; EVENT, if not yet: time that passes at least until it has ended
    room: int = 0  # launches until a stream may be full
    ended: int = 0  # all recordings with a lower serial have ended
    host_per_cpu: float = 1.0  # host time over CPU time until the next answer
    ahead: int = 0  # EVENT, if not yet: launches that waits for full streams delay by less than 3/4 of `value`
    until: int = 0  # EVENT, if not yet: number of the first query with another answer than "not yet", if it is known

    @classmethod
    def unpack(cls, message: bytes) -> LiveAnswer:
        """Decode a message."""
        status, *fields = _ANSWER.unpack(message)
        return cls(Status(status), *fields)

    def pack(self) -> bytes:
        """Encode for the message that the emulated device reads."""
        return _ANSWER.pack(*self)


QUESTION_BYTES = _QUESTION.size
