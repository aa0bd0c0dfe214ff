"""The keys of a rendezvous store: what ranks set and wait for, with answers for the ranks that are not there.

A key that only an absent rank would set is set here as soon as a rank waits for it (see
`presim.capture.rendezvous.present_ranks`): to an NCCL unique id for a communicator, to ``1`` elsewhere.
"""

from __future__ import annotations

import threading

from presim.capture.rendezvous.present_ranks import PresentRanks


class Keys:
    """Keys and values, guarded by one condition; ``presence`` answers for absent ranks."""

    def __init__(self, presence: PresentRanks) -> None:
        self.presence = presence
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, list[bytes]] = {}
        self.changed = threading.Condition()
        self.waiting: set[int] = set()  # ports of the clients that wait for a key

    def set(self, key: str, value: bytes) -> None:
        """Set a key and wake who waits for it."""
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Set a key that has the expected value (or is absent, expected empty); returns what it now has."""
        with self.changed:
            current = self.values.get(key)
            if current is None and expected:
                return expected
            if current is None or current == expected:
                self.values[key] = desired
                self.changed.notify_all()
            return self.values[key]

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which is kept as decimal text."""
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
        """True once all keys are there; what only absent ranks would set is there at once."""
        with self.changed:
            missing = [key for key in keys if key not in self.values and not self.queues.get(key)]
            for key in missing:
                answer = self.presence.answer(key)
                if answer is None:
                    return False
                self.values[key] = answer
            return True

    def left(self, rank: int) -> None:
        """A rank has ended; nobody waits for it any more."""
        with self.changed:
            self.presence.left(rank)
            self.changed.notify_all()

    def has(self, keys: list[str]) -> bool:
        """Whether all keys are there; asks for nothing."""
        with self.changed:
            return all(key in self.values or self.queues.get(key) for key in keys)

    def push(self, key: str, value: bytes) -> None:
        """Put a value at the end of a queue and wake who waits for it."""
        with self.changed:
            self.queues.setdefault(key, []).append(value)
            self.changed.notify_all()

    def pop(self, key: str) -> tuple[int, bytes]:
        """Length of a queue, and its first value, which is taken out; ``(0, b"")`` where it is empty."""
        with self.changed:
            queue = self.queues.get(key, [])
            return len(queue), queue.pop(0) if queue else b""
