"""Which ranks may be forks of one process, and how their exit codes are reported."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from presim.capture.processes import forks
from presim.capture.processes.forks import RECIPE, Forks
from presim.capture.processes.rank_process import Process, Start, execute, has_ended_within
from presim.capture.script.control import ForkRequest

SHARED = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "PRESIM_LIVE": "1.0 2 3"}


def start(rank: int, *, python: tuple[str, ...] = (), **variables: str) -> Start:
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank % 8), "PRESIM_RANK": str(rank), "PRESIM_LOG_DIR": f"/logs/{rank}"}
    return Start(rank, Path(f"/logs/{rank}/control"), {**SHARED, **own, **variables}, python)


class Zygote:
    """The launcher's peer on the channel."""

    def __init__(self) -> None:
        self.begun: list[Start] = []

    def begin(self, there: Forks, first: Start) -> None:
        self.begun.append(first)
        there._shared_variables, there._options = forks._without_rank_variables(first), first.python
        there._channel, self.channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        there._zygote = self  # type: ignore[assignment]

    code: int | None = None  # once it has ended

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.channel.close()

    def wait(self) -> None:
        """Make it look ended."""


@pytest.fixture
def zygote(monkeypatch: pytest.MonkeyPatch) -> Zygote:
    made = Zygote()
    monkeypatch.setattr(Forks, "_begin", lambda there, first: made.begin(there, first))
    return made


def test_a_single_rank_is_a_separate_process(zygote: Zygote) -> None:
    with Forks() as there:
        assert there.starter([start(0)]) is execute
    assert not zygote.begun


def test_ranks_that_run_together_are_forks_and_so_are_later_ones(zygote: Zygote) -> None:
    with Forks() as there:
        assert there.starter([start(0), start(9)]) is not execute
        assert there.starter([start(3, MASTER_PORT="1234")]) is not execute
    assert [one.rank for one in zygote.begun] == [0]


@pytest.mark.parametrize(
    "other", [start(1, OMP_NUM_THREADS="2"), start(1, NCCL_ALGO="Ring"), start(1, python=("-O",))], ids=str
)
def test_ranks_that_differ_in_a_library_variable_are_not_forked(zygote: Zygote, other: Start) -> None:
    with Forks() as there:
        assert there.starter([start(0), other]) is execute


def test_a_single_rank_is_a_fork_if_its_recipe_is_imported_before(zygote: Zygote) -> None:
    with Forks((RECIPE, "train.py")) as there:
        assert there.starter([start(0)]) is not execute


def test_ranks_that_run_together_share_the_imports_of_the_script(zygote: Zygote) -> None:
    """A single rank starts separately."""
    with Forks(("script", "train.py")) as there:
        assert there.starter([start(0)]) is execute
        assert there.starter([start(0), start(1)]) is not execute


def test_ranks_share_only_pytorch_if_the_imports_cannot_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that reads its rank during import ends the zygote."""
    begun: list[tuple[str, str] | None] = []
    channel = socket.socketpair()[0]

    def begin(there: Forks, first: Start) -> None:
        begun.append(there.imports)
        there._channel = None if there.imports else channel

    monkeypatch.setattr(Forks, "_begin", begin)
    with Forks(("script", "train.py")) as there:
        there.starter([start(0), start(1)])
    assert begun == [("script", "train.py"), None]


def test_a_zygote_that_began_early_is_waited_for_unless_variables_have_changed(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator of a live clock sets variables after the imports have begun."""

    def begin(there: Forks, first: Start) -> None:
        zygote.begin(there, first)
        there._awaited, there._channel = there._channel, None
        zygote.channel.send(b"ready")

    monkeypatch.setattr(Forks, "_begin", begin)
    with Forks() as there:
        there.begin([start(0)])
        assert not zygote.begun
        there.begin([start(0), start(1)])
        there.begin([start(0), start(1)])
        assert there.starter([start(0), start(1)]) is not execute
        assert len(zygote.begun) == 1
    with Forks() as there:
        there.begin([start(0), start(1)])
        live = [start(rank, PRESIM_LIVE="1.0") for rank in (0, 1)]
        assert there.starter(live) is not execute
        assert zygote.begun[1:] == [start(0), live[0]]


def test_a_zygote_that_has_ended_is_restarted(zygote: Zygote) -> None:
    with Forks() as there:
        there.starter([start(0), start(1)])
        zygote.code = -signal.SIGKILL
        assert there.starter([start(0)]) is execute
        assert there.starter([start(0), start(1)]) is not execute
    assert len(zygote.begun) == 2


def fork(zygote: Zygote, lines: bytes) -> tuple[Process, ForkRequest]:
    """Rank 1, started by a zygote that writes these lines to its pipe."""
    heard: list[bytes] = []

    def answer() -> None:
        message, files, _, _ = socket.recv_fds(zygote.channel, 1 << 16, 3)
        heard.append(message)
        os.write(files[0], lines)
        for file in files:
            os.close(file)

    with Forks() as there:
        begin = there.starter([start(0), start(1)])
        answering = threading.Thread(target=answer)
        answering.start()
        process = begin(start(1, MASTER_PORT="1234"))
        answering.join()
    return process, msgspec.json.decode(heard[0], type=ForkRequest)


def test_a_fork_gets_only_its_own_variables(zygote: Zygote) -> None:
    process, request = fork(zygote, b"42\n0\n")
    own = {"RANK": "1", "LOCAL_RANK": "1", "PRESIM_RANK": "1", "PRESIM_LOG_DIR": "/logs/1", "MASTER_PORT": "1234"}
    assert request == ForkRequest("/logs/1/control", own)
    assert process.pid == 42
    process.close()


@pytest.mark.parametrize(
    ("lines", "code"), [(b"42\n0\n", 0), (b"42\n-11\n", -signal.SIGSEGV), (b"42\n", -signal.SIGKILL)], ids=str
)
def test_the_zygote_reports_the_exit_code_of_a_fork(zygote: Zygote, lines: bytes, code: int) -> None:
    """If the zygote is gone, its forks were killed with it."""
    process, _ = fork(zygote, lines)
    assert has_ended_within(process, 10)
    assert process.poll() == code
    process.close()
    assert process.poll() == code
