"""Record which device values the script reads, and end loops that wait for a value that never changes.

A program that repeatedly reads the same values at the same lines, without launching work of a new shape, waits for
something that cannot happen. It is ended after many rounds and enough CPU time.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable

from presim.capture.device_values.policies import DeviceValueOrigin, format_for_hook
from presim.capture.script.current_line import calling_line, is_own, program_frame
from presim.capture.script.hook import Hook, OnRead
from presim.capture.script.value_uses import is_confined
from presim.trace.schema import ReadBack

_NAMES = {"_local_scalar_dense": "item", "copy_": "copy to host"}
_ROUNDS = 1000  # repeated reads after which a loop may count as endless


class ReadBacks:
    """Collects the hook's reports of reads."""

    def __init__(
        self, policies: dict[str, str], endless: Callable[[str], None], lowest_rank: int | None = None
    ) -> None:
        self.policies = policies
        self.lowest_rank = lowest_rank  # as for `format_for_hook`
        self.endless = endless  # called with an error message; does not return
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self._may_decide: dict[tuple[str, str, int], bool] = {}  # the same keys: as in `ReadBack`
        self._limit_s = float(policies["watchdog"])
        self._since = time.process_time()  # time of the latest progress
        self._known: set[tuple[str, int]] = set()  # (line, bits) read since then
        self._rounds = 0
        self._descriptions = 0

    def install(self, hook: Hook) -> None:
        """Enable values and reports of reads."""
        self._count_descriptions = hook.descriptions
        self._on_read = OnRead(self._read)  # must stay alive as long as the hook may call it
        hook.enable_values(format_for_hook(self.policies, self.lowest_rank).encode(), self._on_read)

    def records(self) -> tuple[ReadBack, ...]:
        """Every place with its number of reads, most frequent first."""
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return tuple(
            ReadBack(line, access, DeviceValueOrigin(origin).label, times, self._may_decide[line, access, origin])
            for (line, access, origin), times in ordered
        )

    def _read(self, operator: bytes, origin: int, bits: int) -> None:
        name = operator.decode().rpartition("::")[2]
        access = _NAMES.get(name, name.strip("_"))
        line = calling_line()
        key = line, access, origin
        self.counts[key] += 1
        if key not in self._may_decide:
            self._may_decide[key] = _may_decide(DeviceValueOrigin(origin))
        self._watch(line, access, origin, bits)

    def progress(self) -> None:
        """Restart the watchdog: the program made a step, read a new value or launched work of a new shape."""
        self._since = time.process_time()
        self._rounds = 0

    def _watch(self, line: str, access: str, origin: int, bits: int) -> None:
        descriptions = self._count_descriptions()
        if (line, bits) not in self._known or descriptions != self._descriptions:
            self._known.add((line, bits))
            self._descriptions = descriptions
            self.progress()
            return
        self._rounds += 1
        if self._rounds < _ROUNDS or time.process_time() - self._since < self._limit_s:
            return
        self.endless(
            f"the script loops at {line} on a device value that does not change: it read {_value(bits)} "
            f"({access}, {DeviceValueOrigin(origin).label}) {self._rounds} times in "
            f"{time.process_time() - self._since:.0f} s and did nothing else. If the loop ends later, allow more time "
            "with --values watchdog=SECONDS; to choose a value that a policy provides, use --values KEY=VALUE"
        )


def _may_decide(origin: DeviceValueOrigin) -> bool:
    """Whether what the program does next may depend on a value read now.

    Libraries print losses and numbers; where the program's own files do more, its source shows. A routing decides
    shapes by itself.
    """
    if not origin.is_local or origin == DeviceValueOrigin.ROUTING:
        return origin == DeviceValueOrigin.ROUTING
    frame = program_frame()
    return frame is not None and is_own(frame.f_code.co_filename) and not is_confined(frame)


def _value(bits: int) -> str:
    """Format the first bytes of what was read: as an integer if plausible, else as a float."""
    if -(1 << 20) < bits < 1 << 20:
        return str(bits)
    return f"{struct.unpack('<f', struct.pack('<q', bits)[:4])[0]:g}"
