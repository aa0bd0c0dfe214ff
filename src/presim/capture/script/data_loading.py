"""Record what a data loader's workers do: when the script asks them for a batch, how long they take, when it waits.

A worker is a process of its own, forked from the script's. It measures the CPU time from one batch to the next, with
what it takes to hand a batch over, and the time in which it sleeps, and appends both to a file that the launcher reads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import _utils, dataloader

from presim.capture.reading.fetches import TIMES, times_file
from presim.capture.script.hook import Hook
from presim.trace.schema import fetch_request


class DataLoading:
    """Watches all data loaders of the process."""

    def __init__(self, hook: Hook, directory: Path) -> None:
        self._hook = hook
        self._directory = directory
        self._loaders = 0  # number of loaders with workers so far; the last one's number is one less

    def install(self) -> None:
        """Watch loaders that are created from here on."""
        loading = dataloader._MultiProcessingDataLoaderIter
        _wrap(loading, "__init__", self._creates)
        _wrap(loading, "_reset", self._resets)
        _wrap(loading, "_try_put_index", self._asks)
        _wrap(loading, "_process_data", self._receives)
        _wrap(_utils.worker, "_worker_loop", self._works)

    def _creates(self, create: Callable[..., None], loader: Any, *args: Any, **kwargs: Any) -> None:
        loader.presim_number = self._loaders
        self._loaders += 1
        loader.presim_requests = {}  # by worker: how many batches it was asked for
        loader.presim_waiting = {}  # by worker: the requests that have not been received
        create(loader, *args, **kwargs)

    def _resets(self, reset: Callable[..., None], loader: Any, *args: Any, **kwargs: Any) -> None:
        loader.presim_waiting.clear()
        reset(loader, *args, **kwargs)

    def _asks(self, ask: Callable[[Any], None], loader: Any) -> None:
        number = loader._send_idx
        ask(loader)
        if loader._send_idx == number:
            return  # the data have ended
        worker = loader._task_info[number][0]
        count = loader.presim_requests.get(worker, 0)
        loader.presim_requests[worker] = count + 1
        request = fetch_request(loader.presim_number, worker, count)
        loader.presim_waiting.setdefault(worker, deque()).append(request)
        self._hook.fetch(request)

    def _receives(self, receive: Callable[..., Any], loader: Any, data: Any, worker: int, *args: Any) -> Any:
        if waiting := loader.presim_waiting.get(worker):
            self._hook.fetch_wait(waiting.popleft())
        return receive(loader, data, worker, *args)

    def _works(self, work: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """In the worker's process: ``args`` are those of PyTorch's loop, the worker's number among them."""
        with contextlib.suppress(OSError):
            _WorkerTimes(times_file(self._directory, self._loaders - 1, args[-4])).install()
        work(*args, **kwargs)


class _WorkerTimes:
    """Measures the batches of one worker, in its own process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._slept_ns = 0
        self._before_ns = time.process_time_ns()

    def install(self) -> None:
        _wrap(time, "sleep", self._sleeps)
        for fetcher in (_utils.fetch._MapDatasetFetcher, _utils.fetch._IterableDatasetFetcher):
            _wrap(fetcher, "fetch", self._fetches)

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


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a function or method by ``wrapper``, whose first argument is the function."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(function, *args, **kwargs)

    setattr(owner, name, wrapped)
