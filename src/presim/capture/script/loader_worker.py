"""What runs in a data loader's worker process: PyTorch's loop, with the times of its batches.

A worker measures the CPU time from one batch to the next, with what it takes to hand a batch over, and the time in
which it sleeps, and appends both to a file that the launcher reads. Workers are forked, or started anew (spawn,
forkserver): then they import this module by its name.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import _utils

from presim.capture.reading.fetches import TIMES

_pytorch_s_loop = _utils.worker._worker_loop  # before the script's process replaces it


def work(times_path: str, *args: Any, **kwargs: Any) -> None:
    """Do what PyTorch's loop does with the other arguments. ``times_path``: without the worker's number."""
    with contextlib.suppress(OSError):
        _WorkerTimes(Path(f"{times_path}-{args[-4]}")).install()
    _pytorch_s_loop(*args, **kwargs)


class _WorkerTimes:
    """Measures the batches of one worker, in its own process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._slept_ns = 0
        self._before_ns = time.process_time_ns()

    def install(self) -> None:
        wrap(time, "sleep", self._sleeps)
        for fetcher in (_utils.fetch._MapDatasetFetcher, _utils.fetch._IterableDatasetFetcher):
            wrap(fetcher, "fetch", self._fetches)

    def _sleeps(self, sleep: Callable[[float], None], seconds: float) -> None:
        sleep(seconds)
        self._slept_ns += round(seconds * 1e9)

    def _fetches(self, fetch: Callable[..., Any], fetcher: Any, index: Any) -> Any:
        try:
            return fetch(fetcher, index)
        finally:
            now_ns = time.process_time_ns()
            os.write(self._file, TIMES.pack(now_ns - self._before_ns, self._slept_ns))
            self._before_ns, self._slept_ns = now_ns, 0


def wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a function or method by ``wrapper``, whose first argument is the function."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(function, *args, **kwargs)

    setattr(owner, name, wrapped)
