"""Local worker processes of a search: started with the first point, replaced when they die, ended with the search."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from presim.planner.trials import trial_process
from presim.planner.trials.trial import Point
from presim.planner.trials.trial_messages import Reply, Subject


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


class Workers:
    """Evaluates points in ``jobs`` local processes."""

    def __init__(self, job: Subject, jobs: int) -> None:
        self._job, self._jobs = job, jobs
        self._idle: list[subprocess.Popen[bytes]] = []
        self._all: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        trial_process.end(self._all, trial_process.GRACE_S if self._job.captures else 0.0)

    def evaluate(self, points: Sequence[Point], deadline_s: float | None = None) -> Iterator[tuple[int, Reply]]:
        """Yield (index of the point, reply) as replies arrive, until the monotonic clock reads ``deadline_s``."""
        pending: queue.SimpleQueue[tuple[int, Point]] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Reply]] = queue.SimpleQueue()
        for point_index, point in enumerate(points):
            pending.put((point_index, point))
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._serve, args=(pending, done, stop), daemon=True)
            for _ in range(min(self._jobs, len(points)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in points:
                remaining_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
                yield done.get(timeout=remaining_s)
        except queue.Empty:
            return
        finally:
            stop.set()

    def _serve(
        self,
        pending: queue.SimpleQueue[tuple[int, Point]],
        done: queue.SimpleQueue[tuple[int, Reply]],
        stop: threading.Event,
    ) -> None:
        worker = self._take()
        while not stop.is_set():
            try:
                point_index, point = pending.get_nowait()
            except queue.Empty:
                break
            reply = trial_process.ask(worker, point)
            if reply is None and stop.is_set():
                break
            if reply is None:
                code = worker.wait()
                ended = f"signal {-code}" if code < 0 else f"exit code {code}"
                reply = Reply(fate="failed", words=f"the process that evaluated it died ({ended})")
                worker = self._start()
            done.put((point_index, reply))
        with self._lock:
            self._idle.append(worker)

    def _take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        worker = trial_process.start(self._job)
        with self._lock:
            self._all.append(worker)
        return worker
