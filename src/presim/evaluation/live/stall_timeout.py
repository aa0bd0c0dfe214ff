"""How long ranks wait for an idle rank, and the error after that."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from presim.errors import CaptureError, HangError

_IDLE_S = 120.0  # neither a rank's process nor one that it started used any CPU
_STUCK_S = 5.0
_NAMED = 6  # calls in a message
_POLL_S = 1.0  # between two checks of a rank's CPU time


class StallTimeout:
    """Watches ranks by the CPU time that they use; ``spent``: of a rank's processes, in any unit."""

    def __init__(self, spent: Callable[[int], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._spent = spent
        self._clock = clock
        self._spent_since: dict[int, tuple[int, float]] = {}  # rank -> CPU time, and since when
        self._checked = 0.0
        self._stuck_since: float | None = None

    def wait_for(self, ranks: Collection[int]) -> None:
        """Check ranks that others wait for and that wait for no other rank.

        Raises:
            CaptureError: one of them has used no CPU time for too long.
        """
        now = self._clock()
        if now - self._checked < _POLL_S:
            return
        self._checked = now
        self._spent_since = {rank: last for rank, last in self._spent_since.items() if rank in ranks}
        for rank in ranks:
            spent = self._spent(rank)
            if self._spent_since.get(rank, (None, 0.0))[0] != spent:
                self._spent_since[rank] = (spent, now)
            elif now - self._spent_since[rank][1] > _IDLE_S:
                raise CaptureError(
                    f"rank {rank} has used no CPU for {_IDLE_S:g} s while others wait for it on the live clock, and it "
                    "waits for no rank; perhaps for a network, a file or a process: run without --live"
                )

    def check_stuck(self, stuck: bool, describe_incomplete: Callable[[], Sequence[str]]) -> None:
        """Check whether all ranks wait; ``describe_incomplete`` describes the incomplete collectives.

        Raises:
            HangError: all have waited for too long.
        """
        now = self._clock()
        if not stuck:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > _STUCK_S:
            calls = describe_incomplete()
            named = "; ".join(calls[:_NAMED]) + (f"; and {len(calls) - _NAMED} more" if len(calls) > _NAMED else "")
            hint = f"they wait in {named}" if named else "run without --live to see where"
            raise HangError(f"with a live clock every rank waits for another; {hint}")
