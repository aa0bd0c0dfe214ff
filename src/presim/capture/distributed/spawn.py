"""Scripts that start a process for each GPU themselves, with torch.multiprocessing.spawn.

presim has started a process for each rank already. So the function that the script hands over is called here, in this
rank's process, with the number that it would have had among those of its machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch.multiprocessing


class _Ended:
    """What ``spawn(join=False)`` returns, when all is over."""

    processes: Sequence[Any] = ()

    def join(self, *args: Any, **kwargs: Any) -> bool:
        return True


def install(refuse: Callable[[str], NoReturn]) -> None:
    """Before the script runs; ``refuse`` is called with a sentence where the numbers do not fit."""
    here, local = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", 0))

    def start_processes(
        fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, *rest: Any, **more: Any
    ) -> _Ended | None:
        if nprocs != here:
            refuse(
                f"the script starts {nprocs} processes on each machine by itself (torch.multiprocessing), and presim "
                f"was told of {here}: say --nodes N --gpus-per-node {nprocs}"
            )
        fn(local, *args)
        return None if join else _Ended()

    modules: tuple[Any, ...] = (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"])
    for module in modules:
        module.spawn = module.start_processes = start_processes
