"""The keys of a rendezvous store, with values in place of those of absent ranks.

A key that only an absent rank would set gets a value as soon as a rank waits for it (see
`presim.capture.rendezvous.present_ranks`): an NCCL unique id for a communicator, otherwise ``1``.
"""

from __future__ import annotations

import threading

from presim.capture.rendezvous.present_ranks import PresentRanks


class Keys:
    """Keys and values, guarded by one condition; ``present_ranks`` answers for absent ranks."""

    def __init__(self, present_ranks: PresentRanks) -> None:
        self.present_ranks = present_ranks
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, list[bytes]] = {}
        self.changed = threading.Condition()
        self.waiting: set[int] = set()  # ports of the clients that wait for a key

    def set(self, key: str, value: bytes) -> None:
        """Set a key and wake its waiters."""
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Set a key if it has the expected value (absent: an empty one); returns its value afterwards."""
        with self.changed:
            current = self.values.get(key)
            if current is None and expected:
                return expected
            if current is None or current == expected:
                self.values[key] = desired
                self.changed.notify_all()
            return self.values[key]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, stored as decimal text; returns the sum."""
        with self.changed:
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            self.changed.notify_all()
            return total

    def append(self, key: str, value: bytes) -> None:
        """Append to a value."""
        with self.changed:
            self.values[key] = self.values.get(key, b"") + value
            self.changed.notify_all()

    def wait(self, keys: list[str]) -> bool:
        """Whether all keys are set; keys that only absent ranks would set are set now."""
        with self.changed:
            missing = [key for key in keys if key not in self.values and not self.queues.get(key)]
            for key in missing:
                answer = self.present_ranks.answer(key)
                if answer is None:
                    return False
                self.values[key] = answer
            return True

    def rank_ended(self, rank: int) -> None:
        """Record the end of a rank and wake requests that wait for its keys."""
        with self.changed:
            self.present_ranks.rank_ended(rank)
            self.changed.notify_all()

    def has(self, keys: list[str]) -> bool:
        """Whether all keys are set, without setting any."""
        with self.changed:
            return all(key in self.values or self.queues.get(key) for key in keys)

    def push(self, key: str, value: bytes) -> None:
        """Append a value to a queue and wake its waiters."""
        with self.changed:
            self.queues.setdefault(key, []).append(value)
            self.changed.notify_all()

    def pop(self, key: str) -> tuple[int, bytes]:
        """Remove the first value of a queue; returns the former length and the value, or ``(0, b"")`` if empty."""
        with self.changed:
            queue = self.queues.get(key, [])
            return len(queue), queue.pop(0) if queue else b""
