"""Who waits for another rank is known by the exchange's own pages, and by the store's connections."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Set
from pathlib import Path

import pytest

from presim.capture.processes.blocked import Blocked, session_ticks


def page(folder: Path, rank: int, stuck_at: int) -> None:
    (folder / f"rank-{rank}").write_bytes(struct.pack("<8sqQQ", b"PRESIMRK", os.getpid(), 4096, stuck_at))


def nobody() -> Set[int]:
    return set()


def test_a_rank_is_stuck_until_somebody_posts(tmp_path: Path) -> None:
    """At the bell's position that it heard; one move later it may go on."""
    blocked = Blocked(tmp_path, nobody)
    assert not blocked(0)  # nothing has started
    page(tmp_path, 0, stuck_at=8)
    page(tmp_path, 1, stuck_at=0)
    (tmp_path / "bell").write_bytes(struct.pack("<II", 7, 1))
    assert blocked(0)
    assert not blocked(1)
    (tmp_path / "bell").write_bytes(struct.pack("<II", 8, 1))
    assert not blocked(0)


@pytest.mark.parametrize("waits", [True, False])
def test_a_rank_whose_connection_waits_at_the_store_is_known_by_its_sockets(tmp_path: Path, waits: bool) -> None:
    """This process is rank 0, and its connection one that waits or another."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = client.getsockname()[1]
        blocked = Blocked(tmp_path, lambda: {port} if waits else {1})
        blocked.watch({0: os.getpid()})
        assert blocked(0) == waits
        assert not blocked(1)


def test_a_process_that_is_gone_has_ended(tmp_path: Path) -> None:
    blocked = Blocked(tmp_path, nobody)
    child = os.fork()
    if child == 0:
        os._exit(0)
    blocked.watch({0: child, 1: os.getpid()})
    os.waitpid(child, 0)
    assert (blocked.has_ended(0), blocked.has_ended(1), blocked.has_ended(2)) == (True, False, False)


def test_what_a_session_used_grows_with_its_work() -> None:
    session = os.getsid(0)
    before = session_ticks(session)
    while session_ticks(session) == before:
        sum(range(10**6))
    assert session_ticks(session) > before
