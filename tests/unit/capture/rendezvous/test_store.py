"""The rendezvous server, tested over a raw socket and with PyTorch's client."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from presim.capture.rendezvous.present_ranks import UNIQUE_ID_BYTES, PresentRanks, absent_rank_value
from presim.capture.rendezvous.store import VALIDATION, Query, RendezvousServer
from presim.capture.setup.shim import shim_libraries

READY, NOT_READY, STOP_WAITING, CANCELED = b"\0", b"\1", b"\0", b"\1"


class Client:
    """Speaks the protocol of a TCPStore's client."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.stream = self.socket.makefile("rb")
        self.send(Query.VALIDATE, struct.pack("<I", VALIDATION))

    def send(self, query: Query, *parts: bytes) -> None:
        self.socket.sendall(bytes([query]) + b"".join(parts))

    def number(self) -> int:
        return int(struct.unpack("<q", self.stream.read(8))[0])

    def vector(self) -> bytes:
        return self.stream.read(self.number())

    def byte(self) -> bytes:
        return self.stream.read(1)

    def set(self, key: str, value: bytes) -> None:
        self.send(Query.SET, text(key), vector(value))

    def get(self, key: str) -> bytes:
        self.send(Query.GET, text(key))
        return self.vector()

    def ping(self) -> bytes:
        """A reply shows that everything sent before has been handled."""
        self.send(Query.PING, b"abcd")
        return self.stream.read(4)

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def vector(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def text(key: str) -> bytes:
    return vector(key.encode())


def keys(*names: str) -> bytes:
    return struct.pack("<Q", len(names)) + b"".join(text(name) for name in names)


@contextlib.contextmanager
def connected(*, alone: bool, clients: int = 1) -> Iterator[list[Client]]:
    with RendezvousServer(PresentRanks([0] if alone else [0, 1])) as server:
        found = [Client(server.port) for _ in range(clients)]
        yield found
        for client in found:
            client.close()


def test_every_client_gets_a_value_that_was_set() -> None:
    with connected(alone=True, clients=2) as (one, other):
        one.set("key", b"\0value\xff")
        assert one.ping() == b"abcd"
        assert other.get("key") == b"\0value\xff"


def test_counters_add_up_and_are_stored_as_text() -> None:
    with connected(alone=True) as (client,):
        for amount, total in ((2, 2), (3, 5), (-1, 4), (0, 4)):
            client.send(Query.ADD, text("count"), struct.pack("<q", amount))
            assert client.number() == total
        assert client.get("count") == b"4"


@pytest.mark.parametrize(
    ("before", "expected", "answer", "after"),
    [
        (b"a", b"a", b"b", b"b"),
        (b"x", b"a", b"x", b"x"),
        (None, b"", b"b", b"b"),
        (None, b"a", b"a", None),
    ],
    ids=["equal", "another", "absent, none expected", "absent, one expected"],
)
def test_compare_set_changes_what_has_the_expected_value(
    before: bytes | None, expected: bytes, answer: bytes, after: bytes | None
) -> None:
    with connected(alone=True) as (client,):
        if before is not None:
            client.set("key", before)
        client.send(Query.COMPARE_SET, text("key"), vector(expected), vector(b"b"))
        assert client.vector() == answer
        client.send(Query.CHECK, keys("key"))
        assert client.byte() == (READY if after else NOT_READY)
        if after:
            assert client.get("key") == after


def test_check_does_not_create_keys() -> None:
    """A script may check for a key before it sets it."""
    with connected(alone=True) as (client,):
        client.set("here", b"1")
        for names, answer in ((("here",), READY), (("here", "absent"), NOT_READY), (("absent",), NOT_READY)):
            client.send(Query.CHECK, keys(*names))
            assert client.byte() == answer


def test_a_single_rank_does_not_wait() -> None:
    with connected(alone=True) as (client,):
        client.send(Query.WAIT, keys("set by rank 5", "set by rank 6"))
        assert client.byte() == STOP_WAITING
        assert client.get("set by rank 5") == b"1"


def test_a_communicator_of_absent_ranks_has_the_same_id_in_every_run() -> None:
    """NCCL ids have 128 bytes; PyTorch's keys for them are numbers after the prefix of the group's store."""
    for key in ("0", "default_pg/0//cuda//0", "2//cuda//0:1"):
        value = absent_rank_value(key)
        assert len(value) == UNIQUE_ID_BYTES
        assert value == absent_rank_value(key) != absent_rank_value(key + "0")
    assert absent_rank_value("store_based_barrier_key:1/last_member") == b"1"


def test_several_ranks_wait_for_each_other() -> None:
    """A wait is answered only when the last key is set."""
    with connected(alone=False, clients=2) as (waiting, setting):
        waiting.send(Query.WAIT, keys("a", "b"))
        setting.set("a", b"1")
        assert setting.ping() == b"abcd"
        waiting.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            waiting.socket.recv(1, socket.MSG_PEEK)
        waiting.socket.settimeout(10)
        setting.set("b", b"1")
        assert waiting.byte() == STOP_WAITING


def test_a_connection_can_be_used_after_a_canceled_wait() -> None:
    with connected(alone=False) as (client,):
        client.send(Query.WAIT, keys("never"))
        client.send(Query.CANCEL_WAIT)
        assert client.byte() == CANCELED
        assert client.ping() == b"abcd"


def test_appended_values_are_concatenated() -> None:
    with connected(alone=True) as (client,):
        for part in (b"ab", b"cd"):
            client.send(Query.APPEND, text("key"), vector(part))
        assert client.get("key") == b"abcd"


def test_several_keys_are_set_and_read_at_once() -> None:
    with connected(alone=True) as (client,):
        client.send(Query.MULTI_SET, struct.pack("<Q", 2), text("a"), vector(b"1"), text("b"), vector(b"22"))
        client.send(Query.MULTI_GET, keys("b", "a"))
        assert (client.vector(), client.vector()) == (b"22", b"1")


def test_keys_are_counted_listed_and_deleted() -> None:
    with connected(alone=True) as (client,):
        client.set("b", b"1")
        client.set("a", b"1")
        client.send(Query.GETNUMKEYS)
        assert client.number() == 2
        client.send(Query.LIST_KEYS)
        assert (client.number(), client.vector(), client.vector()) == (2, b"a", b"b")
        for deleted in (1, 0):
            client.send(Query.DELETE_KEY, text("a"))
            assert client.number() == deleted


def test_a_queue_is_popped_in_order_and_is_not_a_key() -> None:
    with connected(alone=False, clients=2) as (waiting, pushing):
        waiting.send(Query.WAIT, keys("queue"))
        for value in (b"first", b"second"):
            pushing.send(Query.QUEUE_PUSH, text("queue"), vector(value))
        assert pushing.ping() == b"abcd"  # both have arrived
        assert waiting.byte() == STOP_WAITING
        for length, value in ((2, b"first"), (1, b"second")):
            waiting.send(Query.QUEUE_LEN, text("queue"))
            assert waiting.number() == length
            waiting.send(Query.QUEUE_POP, text("queue"))
            assert (waiting.number(), waiting.vector()) == (length, value)
        waiting.send(Query.QUEUE_POP, text("queue"))
        assert waiting.number() == 0
        waiting.send(Query.GETNUMKEYS)
        assert waiting.number() == 0


def test_a_single_rank_passes_every_barrier() -> None:
    with connected(alone=True) as (client,):
        client.send(Query.BARRIER, text("end"), struct.pack("<q", 128))
        assert client.byte() == STOP_WAITING
        assert client.ping() == b"abcd"


def test_a_foreign_client_is_disconnected_and_others_are_served() -> None:
    with RendezvousServer(PresentRanks([0])) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
        client = Client(server.port)
        assert client.ping() == b"abcd"
        client.close()


def test_concurrent_adds_are_counted() -> None:
    with RendezvousServer(PresentRanks([0, 1])) as server:
        totals: list[int] = []

        def add() -> None:
            client = Client(server.port)
            for _ in range(50):
                client.send(Query.ADD, text("count"), struct.pack("<q", 1))
                totals.append(client.number())
            client.close()

        threads = [threading.Thread(target=add) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(totals) == list(range(1, 401))


REAL_CLIENT = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", int(sys.argv[1]), None, False, timeout=timedelta(seconds=20), use_libuv=True)
store.set("key", "value")
assert store.get("key") == b"value"
assert [store.add("count", 2), store.add("count", 3)] == [2, 5]
assert store.compare_set("key", "value", "new") == b"new"
assert store.compare_set("key", "value", "newer") == b"new"
assert store.check(["key"]) and not store.check(["absent"])
store.wait(["set by another rank"])
assert store.get("of another rank") == b"1"
assert store.delete_key("key") and not store.delete_key("key")
store.append("list", "a"), store.append("list", "b")
store.multi_set(["x", "y"], ["1", "2"])
assert store.multi_get(["x", "y", "list"]) == [b"1", b"2", b"ab"]
if hasattr(store, "queue_push"):
    store.queue_push("queue", b"first")
    store.queue_push("queue", b"second")
    assert store.queue_len("queue") == 2
    assert [store.queue_pop("queue"), store.queue_pop("queue")] == [b"first", b"second"]
    assert store.queue_len("queue") == 0
if hasattr(store, "list_keys"):
    assert {key.lstrip("/") for key in store.list_keys()} >= {"x", "y", "list"}
if hasattr(store, "barrier"):
    store.barrier("end", 128, timedelta(seconds=20))
assert store.num_keys() >= 3
assert len(store.clone().get("pg/0")) == 128
print("agreed")
"""


@pytest.mark.torch_cuda
def test_pytorch_s_client_works_with_this_server() -> None:
    """Every call of the real client gets the reply of PyTorch's server."""
    import os

    variables = {**os.environ, "LD_PRELOAD": ":".join(str(path) for path in shim_libraries())}
    with RendezvousServer(PresentRanks([0])) as server:
        command = [sys.executable, "-c", REAL_CLIENT, str(server.port)]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == "agreed\n", ended.stderr
