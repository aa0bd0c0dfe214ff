"""The rendezvous store that a launched rank meets, with answers for the ranks that are not there.

A rank of ``torch.distributed`` talks to a TCPStore, which its launcher usually hosts. This one speaks the same
protocol (PyTorch, torch/csrc/distributed/c10d/TCPStoreBackend.hpp: a query is one byte, strings and byte vectors
are preceded by their length as uint64, all little-endian) and, where a rank waits for a key that only an absent rank
would set, sets it (`presim.capture.ranks.presence`): an NCCL unique id where the key is a communicator's, ``1``
elsewhere.
"""

from __future__ import annotations

import enum
import io
import socket
import socketserver
import struct
import threading

from presim.capture.ranks.presence import Presence

VALIDATION = 0x3C85F7CE


class Query(enum.IntEnum):
    """First byte of a request."""

    VALIDATE = 0
    SET = 1
    COMPARE_SET = 2
    GET = 3
    ADD = 4
    CHECK = 5
    WAIT = 6
    GETNUMKEYS = 7
    DELETE_KEY = 8
    APPEND = 9
    MULTI_GET = 10
    MULTI_SET = 11
    CANCEL_WAIT = 12
    PING = 13
    QUEUE_PUSH = 14
    QUEUE_POP = 15
    QUEUE_LEN = 16
    LIST_KEYS = 17
    BARRIER = 18


READY, NOT_READY = 0, 1
STOP_WAITING, WAIT_CANCELED = 0, 1


class Store:
    """Keys and values, guarded by one condition; ``presence`` answers for absent ranks."""

    def __init__(self, presence: Presence) -> None:
        self.presence = presence
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, list[bytes]] = {}
        self.changed = threading.Condition()

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


class _Connection(socketserver.BaseRequestHandler):
    """One client; its requests come one after the other."""

    server: RendezvousServer

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream: io.BufferedReader = self.request.makefile("rb")
        try:
            while query := self.stream.read(1):
                self._answer(Query(query[0]))
        except (ConnectionError, struct.error, ValueError):
            return  # the client is gone, or is none of ours

    def _answer(self, query: Query) -> None:
        getattr(self, f"_{query.name.lower()}")()

    def _number(self) -> int:
        return int(struct.unpack("<q", self.stream.read(8))[0])

    def _bytes(self) -> bytes:
        return self.stream.read(self._number())

    def _key(self) -> str:
        return self._bytes().decode()

    def _keys(self) -> list[str]:
        return [self._key() for _ in range(self._number())]

    def _send(self, *values: bytes) -> None:
        self.request.sendall(b"".join(values))

    @staticmethod
    def _vector(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    def _validate(self) -> None:
        if struct.unpack("<I", self.stream.read(4))[0] != VALIDATION:
            raise ValueError("not a TCPStore client")

    def _ping(self) -> None:
        self._send(self.stream.read(4))

    def _set(self) -> None:
        key, value = self._key(), self._bytes()
        self.server.store.set(key, value)

    def _compare_set(self) -> None:
        key, expected, desired = self._key(), self._bytes(), self._bytes()
        self._send(self._vector(self.server.store.compare_set(key, expected, desired)))

    def _get(self) -> None:
        key = self._key()
        self.server.store.wait([key])
        self._send(self._vector(self.server.store.values.get(key, b"")))

    def _add(self) -> None:
        key, amount = self._key(), self._number()
        self._send(struct.pack("<q", self.server.store.add(key, amount)))

    def _check(self) -> None:
        self._send(bytes([READY if self.server.store.has(self._keys()) else NOT_READY]))

    def _wait(self) -> None:
        keys = self._keys()
        store = self.server.store
        while not store.wait(keys):
            with store.changed:
                store.changed.wait(0.05)
            if self._canceled():
                return
        self._send(bytes([STOP_WAITING]))

    def _canceled(self) -> bool:
        """A client that waits may only send a cancellation."""
        self.request.setblocking(False)
        try:
            if self.stream.peek(1):
                return True  # the loop reads the query and answers it
            self.request.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self.request.setblocking(True)
        raise ConnectionError  # nothing more will come

    def _cancel_wait(self) -> None:
        self._send(bytes([WAIT_CANCELED]))

    def _getnumkeys(self) -> None:
        self._send(struct.pack("<q", len(self.server.store.values)))

    def _delete_key(self) -> None:
        with self.server.store.changed:
            found = self.server.store.values.pop(self._key(), None)
        self._send(struct.pack("<q", int(found is not None)))

    def _append(self) -> None:
        key, value = self._key(), self._bytes()
        self.server.store.append(key, value)

    def _multi_get(self) -> None:
        keys = self._keys()
        self.server.store.wait(keys)
        self._send(*(self._vector(self.server.store.values.get(key, b"")) for key in keys))

    def _multi_set(self) -> None:
        for _ in range(self._number()):
            key, value = self._key(), self._bytes()
            self.server.store.set(key, value)

    def _queue_push(self) -> None:
        key, value = self._key(), self._bytes()
        self.server.store.push(key, value)

    def _queue_pop(self) -> None:
        length, value = self.server.store.pop(self._key())
        self._send(struct.pack("<q", length), self._vector(value) if length else b"")

    def _queue_len(self) -> None:
        self._send(struct.pack("<q", len(self.server.store.queues.get(self._key(), []))))

    def _list_keys(self) -> None:
        keys = sorted(self.server.store.values)
        self._send(struct.pack("<q", len(keys)), *(self._vector(key.encode()) for key in keys))

    def _barrier(self) -> None:
        self._key(), self._number()  # name and world size: nobody else is there
        self._send(bytes([STOP_WAITING]))


class RendezvousServer(socketserver.ThreadingTCPServer):
    """Listens on a free port of the loopback interface until closed; a context manager."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, presence: Presence) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.store = Store(presence)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return int(self.server_address[1])

    def __enter__(self) -> RendezvousServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self.server_close()
