"""Record when the script asks a data loader's workers for a batch, and when it waits for one.

How long they take for each, they measure themselves (`presim.capture.script.loader_worker`). With a live clock the host
then waits until the batch would be ready on the cluster.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import _utils, dataloader

from presim.capture.reading.fetches import LIVE, LIVE_WORKERS, TIMES, times_file
from presim.capture.script import loader_worker
from presim.capture.script.hook import Hook
from presim.capture.script.loader_worker import wrap
from presim.trace.schema import fetch_parts, fetch_request, fetch_worker


class DataLoading:
    """Watches all data loaders of the process."""

    def __init__(self, hook: Hook, directory: Path) -> None:
        self._hook = hook
        self._directory = directory
        self._loaders = 0  # number of loaders with workers so far; the last one's number is one less
        live = os.environ.get(LIVE_WORKERS)
        self._live = LiveWorkers(directory, *map(float, live.split())) if live else None

    def install(self) -> None:
        """Watch loaders that are created from here on."""
        loading = dataloader._MultiProcessingDataLoaderIter
        wrap(loading, "__init__", self._creates)
        wrap(loading, "_reset", self._resets)
        wrap(loading, "_try_put_index", self._asks)
        wrap(loading, "_process_data", self._receives)

    def _creates(self, create: Callable[..., None], loader: Any, *args: Any, **kwargs: Any) -> None:
        loader.presim_number = self._loaders
        times_path = times_file(self._directory, self._loaders)
        _utils.worker._worker_loop = functools.partial(loader_worker.work, str(times_path))
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
        if self._live:
            self._live.ask(request)

    def _receives(self, receive: Callable[..., Any], loader: Any, data: Any, worker: int, *args: Any) -> Any:
        if waiting := loader.presim_waiting.get(worker):
            request = waiting.popleft()
            self._hook.fetch_wait(request)
            if self._live:
                self._live.wait(request)
        return receive(loader, data, worker, *args)


class LiveWorkers:
    """The workers' time on the simulated clock, which the process's own clocks show.

    It is that of `presim.engine.batch_fetches`. ``host_factor``: time on the cluster over CPU time here;
    ``cores_per_rank``: 0 if they are not limited.
    """

    def __init__(self, directory: Path, host_factor: float, cores_per_rank: float) -> None:
        self._directory = directory
        self._host_factor = host_factor
        self._cores_per_rank = cores_per_rank
        self._asked_ns: dict[int, int] = {}  # by request
        self._ready_ns: dict[int, int] = {}  # by worker
        self._latest: dict[int, int] = {}  # request by worker
        self._files: dict[int, int] = {}  # by worker
        Path(directory, LIVE).touch()

    def ask(self, request: int) -> None:
        """The host asks for a batch now."""
        self._asked_ns[request] = time.monotonic_ns()
        self._latest[fetch_worker(request)] = request

    def wait(self, request: int) -> None:
        """The batch has arrived here: sleep until it has on the cluster."""
        worker = fetch_worker(request)
        begin_ns = max(self._asked_ns.pop(request, 0), self._ready_ns.get(worker, 0))
        self._ready_ns[worker] = begin_ns + self._batch_ns(request)
        time.sleep(max(1, self._ready_ns[worker] - time.monotonic_ns()) / 1e9)

    def _batch_ns(self, request: int) -> int:
        worker = fetch_worker(request)
        loader, index, number = fetch_parts(request)
        if worker not in self._files:
            path = f"{times_file(self._directory, loader)}-{index}"
            self._files[worker] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        times = os.pread(self._files[worker], TIMES.size, number * TIMES.size)
        cpu_ns: int
        slept_ns: int
        cpu_ns, slept_ns = TIMES.unpack(times) if len(times) == TIMES.size else (0, 0)
        workers = sum(fetch_parts(request)[0] == loader for request in self._latest.values())
        sharing = max(1.0, (workers + 1) / self._cores_per_rank) if self._cores_per_rank else 1.0
        return round(cpu_ns * self._host_factor * sharing) + slept_ns
