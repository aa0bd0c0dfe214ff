"""Support scripts that start one process per GPU themselves, with torch.multiprocessing.spawn.

presim has already started a process for each rank, so the script's function is called in this process, with the rank's
local index.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch.multiprocessing


class _Ended:
    """The return value of ``spawn(join=False)``: everything has already ended."""

    processes: Sequence[Any] = ()

    def join(self, *args: Any, **kwargs: Any) -> bool:
        return True


def install(refuse: Callable[[str], NoReturn]) -> None:
    """Install before the script runs; ``refuse`` gets an error message if the number of processes does not match."""
    expected, local = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))

    def start_processes(
        fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any
    ) -> _Ended | None:
        if nprocs != expected:
            refuse(
                f"the script starts {nprocs} processes on each machine itself (torch.multiprocessing), but presim runs "
                f"{expected} on each node: use --nodes N --gpus-per-node {nprocs}"
            )
        fn(local, *args)
        return None if join else _Ended()

    modules: tuple[Any, ...] = (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"])
    for module in modules:
        module.spawn = module.start_processes = start_processes
