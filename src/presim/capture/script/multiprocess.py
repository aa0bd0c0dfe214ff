"""Python's multiprocessing in a rank: its folder, and the end of the processes that the script has left running.

A rank ends with `os._exit`, which skips what multiprocessing does at exit: it would end workers, unlink semaphores and
remove its temporary folder `pymp-…`. Workers that are killed leave a folder of their own.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import sys
import time
from pathlib import Path
from typing import Any

from presim.system.files.scratch import temporary_folder

_GRACE_S = 1.0  # for workers to end after SIGTERM
# Bytes of a path for which a socket in it, `/listener-xxxxxxxx`, can still be bound: 107 in all on Linux.
_MOST_BYTES = 107 - len("/listener-") - 8
_short_folder = contextlib.ExitStack()


def keep_files_in(folder: Path) -> None:
    """Have multiprocessing of this process and of its workers keep files and sockets in a folder instead of `pymp-…`.

    There is no public option; workers inherit this entry (Python 3.11 to 3.14, `multiprocessing.util.get_temp_dir`).
    In a folder whose path is too long for sockets, workers could not hand over tensors: then it is one in /tmp, which
    `end_workers` removes.
    """
    if len(os.fsencode(folder)) > _MOST_BYTES:
        folder = _short_folder.enter_context(temporary_folder("mp", Path("/tmp")))
    current: Any = multiprocessing.process.current_process()
    current._config.setdefault("tempdir", str(folder))


def end_workers() -> None:
    """End the workers that still run, then release semaphores and shared memory, as multiprocessing does at exit.

    A worker that is no daemon is not waited for: the script was stopped before it could join it.
    """
    with _short_folder:
        _end_workers()


def _end_workers() -> None:
    util: Any = sys.modules.get("multiprocessing.util")
    if util is None:
        return
    workers = multiprocessing.process.active_children()
    for worker in workers:
        worker.terminate()
    until = time.monotonic() + _GRACE_S
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
    for worker in workers:
        if worker.is_alive():
            worker.kill()
    util._run_finalizers()
