"""The rendezvous store, which also answers for absent ranks.

A rank of ``torch.distributed`` uses a TCPStore, usually hosted by its launcher. This server speaks its protocol
(PyTorch, torch/csrc/distributed/c10d/TCPStoreBackend.hpp: a query is one byte, strings and byte vectors are preceded by
their length as uint64, all little-endian). `presim.capture.rendezvous.store_keys` holds the keys.
"""

from __future__ import annotations

import enum
import io
import socket
import socketserver
import struct
import threading

from presim.capture.rendezvous.present_ranks import PresentRanks
from presim.capture.rendezvous.store_keys import Keys

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


class _Connection(socketserver.BaseRequestHandler):
    """One client, which sends its requests one after the other."""

    server: RendezvousServer

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream: io.BufferedReader = self.request.makefile("rb")
        try:
            while query := self.stream.read(1):
                self._answer(Query(query[0]))
        except (ConnectionError, struct.error, ValueError):
            return  # the client has gone, or is not a TCPStore

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
        self.server.keys.set(key, value)

    def _compare_set(self) -> None:
        key, expected, desired = self._key(), self._bytes(), self._bytes()
        self._send(self._vector(self.server.keys.compare_set(key, expected, desired)))

    def _get(self) -> None:
        key = self._key()
        self.server.keys.wait([key])
        self._send(self._vector(self.server.keys.values.get(key, b"")))

    def _add(self) -> None:
        key, amount = self._key(), self._number()
        self._send(struct.pack("<q", self.server.keys.add(key, amount)))

    def _check(self) -> None:
        self._send(bytes([READY if self.server.keys.has(self._keys()) else NOT_READY]))

    def _wait(self) -> None:
        keys = self._keys()
        store_keys = self.server.keys
        try:
            while not store_keys.wait(keys):
                store_keys.waiting.add(self.client_address[1])
                with store_keys.changed:
                    store_keys.changed.wait(0.05)
                if self._canceled():
                    return
        finally:
            store_keys.waiting.discard(self.client_address[1])
        self._send(bytes([STOP_WAITING]))

    def _canceled(self) -> bool:
        """Whether the client has sent a query, which while it waits can only be a cancellation."""
        self.request.setblocking(False)
        try:
            if self.stream.peek(1) or self.request.recv(1, socket.MSG_PEEK):
                return True  # the loop reads and answers the query
        except BlockingIOError:
            return False
        finally:
            self.request.setblocking(True)
        raise ConnectionError  # the client has gone

    def _cancel_wait(self) -> None:
        self._send(bytes([WAIT_CANCELED]))

    def _getnumkeys(self) -> None:
        self._send(struct.pack("<q", len(self.server.keys.values)))

    def _delete_key(self) -> None:
        with self.server.keys.changed:
            deleted_value = self.server.keys.values.pop(self._key(), None)
        self._send(struct.pack("<q", int(deleted_value is not None)))

    def _append(self) -> None:
        key, value = self._key(), self._bytes()
        self.server.keys.append(key, value)

    def _multi_get(self) -> None:
        keys = self._keys()
        self.server.keys.wait(keys)
        self._send(*(self._vector(self.server.keys.values.get(key, b"")) for key in keys))

    def _multi_set(self) -> None:
        for _ in range(self._number()):
            key, value = self._key(), self._bytes()
            self.server.keys.set(key, value)

    def _queue_push(self) -> None:
        key, value = self._key(), self._bytes()
        self.server.keys.push(key, value)

    def _queue_pop(self) -> None:
        length, value = self.server.keys.pop(self._key())
        self._send(struct.pack("<q", length), self._vector(value) if length else b"")

    def _queue_len(self) -> None:
        self._send(struct.pack("<q", len(self.server.keys.queues.get(self._key(), []))))

    def _list_keys(self) -> None:
        keys = sorted(self.server.keys.values)
        self._send(struct.pack("<q", len(keys)), *(self._vector(key.encode()) for key in keys))

    def _barrier(self) -> None:
        self._key(), self._number()  # name and world size, unused: all keys are answered here
        self._send(bytes([STOP_WAITING]))


class RendezvousServer(socketserver.ThreadingTCPServer):
    """Listens on a free port of the loopback interface until closed; a context manager."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, present_ranks: PresentRanks) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.keys = Keys(present_ranks)
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
