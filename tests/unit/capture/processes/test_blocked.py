"""Ranks that wait for another are detected in the exchange's pages and the store's connections."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Set
from pathlib import Path

import pytest

from presim.capture.processes.blocked import BlockedRanks, session_ticks


def page(folder: Path, rank: int, stuck_at: int) -> None:
    (folder / f"rank-{rank}").write_bytes(struct.pack("<8sqQQ", b"PRESIMRK", os.getpid(), 4096, stuck_at))


def nobody() -> Set[int]:
    return set()


def test_a_rank_is_blocked_until_something_is_posted(tmp_path: Path) -> None:
    """It is blocked at the bell position that it published, and free once the bell moves."""
    blocked = BlockedRanks(tmp_path, nobody)
    assert not blocked(0)  # nothing has started
    page(tmp_path, 0, stuck_at=8)
    page(tmp_path, 1, stuck_at=0)
    (tmp_path / "bell").write_bytes(struct.pack("<II", 7, 1))
    assert blocked(0)
    assert not blocked(1)
    (tmp_path / "bell").write_bytes(struct.pack("<II", 8, 1))
    assert not blocked(0)


@pytest.mark.parametrize("waits", [True, False])
def test_a_rank_that_waits_at_the_store_is_found_by_its_sockets(tmp_path: Path, waits: bool) -> None:
    """This process is rank 0; its connection waits or another one does."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = client.getsockname()[1]
        blocked = BlockedRanks(tmp_path, lambda: {port} if waits else {1})
        blocked.watch({0: os.getpid()})
        assert blocked(0) == waits
        assert not blocked(1)


def test_has_ended_is_true_for_a_missing_process(tmp_path: Path) -> None:
    blocked = BlockedRanks(tmp_path, nobody)
    child = os.fork()
    if child == 0:
        os._exit(0)
    blocked.watch({0: child, 1: os.getpid()})
    os.waitpid(child, 0)
    assert (blocked.has_ended(0), blocked.has_ended(1), blocked.has_ended(2)) == (True, False, False)


def test_session_ticks_grow_with_cpu_time() -> None:
    session = os.getsid(0)
    before = session_ticks(session)
    while session_ticks(session) == before:
        sum(range(10**6))
    assert session_ticks(session) > before


def test_waits_are_released_once(tmp_path: Path) -> None:
    """The word of the bell's page that the emulated NCCL reads; without a bell nobody can be released."""
    blocked = BlockedRanks(tmp_path, set)
    assert not blocked.release()
    (tmp_path / "bell").write_bytes(bytes(4096))
    assert blocked.release()
    assert struct.unpack_from("<III", (tmp_path / "bell").read_bytes()) == (0, 0, 1)
    assert not blocked.release()
