"""Workers of a search on a Ray cluster: each actor runs one local worker process on its node.

A node needs Ray and the same version of presim; for a command also the script under the same path. If an actor's node
or process dies, the actor is replaced and its point is evaluated once more. Finished trials are stored by the search,
not on the cluster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import msgspec

import presim
from presim.errors import InputError
from presim.planner.trials.trial import Point
from presim.planner.trials.trial_messages import Reply, Subject
from presim.planner.trials.worker_pool import Workers
from presim.system.files import decode_messagepack

_ATTEMPTS = 2  # evaluations of a point whose actor dies
_PATIENCE_S = 10.0  # seconds to wait for an answer at the cluster's address


class RemoteWorker:
    """Ray actor that evaluates points in one worker process."""

    def __init__(self, job: bytes, folder: str) -> None:
        read = decode_messagepack(job, Subject)
        if read.command and os.path.isdir(folder):
            os.chdir(folder)
        self._workers = Workers(read, 1)

    def about(self) -> tuple[str, int, str]:
        """(presim version, process id, Ray node id)."""
        import ray

        return presim.__version__, os.getpid(), ray.get_runtime_context().get_node_id()

    def evaluate(self, point: bytes) -> bytes:
        """The encoded reply to an encoded point."""
        ((_, reply),) = self._workers.evaluate([decode_messagepack(point, dict[str, Any])])
        return msgspec.msgpack.encode(reply)


@dataclasses.dataclass
class _Pending:
    """A point that an actor is evaluating."""

    actor: Any
    point_index: int
    attempt: int


class RayWorkers:
    """Evaluates points on a cluster in ``jobs`` processes; 0: one per CPU of the cluster."""

    def __init__(self, job: Subject, address: str, jobs: int = 0) -> None:
        self._job, self._address, self._jobs = msgspec.msgpack.encode(job), address, jobs
        self._idle: list[Any] = []
        self._all: list[Any] = []

    def __enter__(self) -> RayWorkers:
        self._own = _connect(self._address)
        cpus = int(_ray().cluster_resources().get("CPU", 0))
        if not cpus:
            self.__exit__(None, None, None)
            raise InputError(
                f"the Ray cluster at {self._address} has no CPUs: start nodes with `ray start --num-cpus N`"
            )
        self._jobs = min(self._jobs or cpus, cpus)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self._all:
            with contextlib.suppress(Exception):  # the actor is already dead
                _ray().kill(actor)
        if self._own:
            _ray().shutdown()

    def evaluate(self, points: Sequence[Point], deadline_s: float | None = None) -> Iterator[tuple[int, Reply]]:
        """Yield (index of the point, reply) as replies arrive, until the monotonic clock reads ``deadline_s``."""
        pending = [(point_index, 1) for point_index in reversed(range(len(points)))]
        running: dict[Any, _Pending] = {}
        try:
            while pending or running:
                while pending and len(running) < self._jobs:
                    point_index, attempt = pending.pop()
                    actor = self._idle.pop() if self._idle else self._start()
                    running[actor.evaluate.remote(msgspec.msgpack.encode(points[point_index]))] = _Pending(
                        actor, point_index, attempt
                    )
                remaining_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
                done, _ = _ray().wait(list(running), num_returns=1, timeout=remaining_s)
                if not done:
                    return
                request = running.pop(done[0])
                reply = self._reply(done[0], request)
                if reply is None:
                    pending.append((request.point_index, request.attempt + 1))
                else:
                    yield request.point_index, reply
        finally:
            for request in running.values():  # the budget ended: stop unfinished evaluations
                _ray().kill(request.actor)

    def about(self) -> list[tuple[str, int, str]]:
        """(presim version, process id, Ray node id) of each actor."""
        descriptions: list[tuple[str, int, str]] = _ray().get([actor.about.remote() for actor in self._all])
        return descriptions

    def _reply(self, reference: Any, request: _Pending) -> Reply | None:
        """An actor's reply; None if it died and the point must be evaluated again."""
        errors = _ray().exceptions
        try:
            reply = decode_messagepack(_ray().get(reference), Reply)
        except errors.RayActorError as error:
            self._all.remove(request.actor)
            if isinstance(error, errors.ActorDiedError) and "__init__" in str(error):
                raise InputError(
                    f"a worker on the Ray cluster does not start: {_last(error)}; install presim {presim.__version__} "
                    "on all nodes"
                ) from error
            if request.attempt < _ATTEMPTS:
                return None
            return Reply(fate="failed", words=f"the process that evaluated it died {request.attempt} times")
        except errors.RayError as error:  # the node cannot decode the class or the point: versions differ
            raise InputError(
                f"a worker on the Ray cluster failed: {_last(error)}; install presim {presim.__version__} and the same "
                "Python on all nodes"
            ) from error
        self._idle.append(request.actor)
        return reply

    def _start(self) -> Any:
        remote_class = _ray().remote(RemoteWorker).options(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")
        actor = remote_class.remote(self._job, os.getcwd())
        self._all.append(actor)
        return actor


def _ray() -> Any:
    import ray

    return ray


def _last(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()[:300]


def _reach(address: str) -> None:
    """Raise at once if nobody listens at the address; Ray itself retries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), _PATIENCE_S).close()


def _connect(address: str) -> bool:
    """Connect to the cluster; False if this process is already connected.

    Raises:
        InputError: Ray is not installed, or no cluster answers.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError("--ray needs Ray: `pip install presim[ray]`, here and on all nodes") from error
    if ray.is_initialized():
        return False
    try:
        _reach(address)
        ray.init(address=address, namespace="presim", log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises many types: connection, address, version
        raise InputError(
            f"no Ray cluster at {address} accepts this search ({_last(error)}); start one with `ray start --head`, or "
            "leave out --ray"
        ) from error
    return True
