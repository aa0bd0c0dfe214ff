"""Run vLLM's workers as the ranks that presim has started.

vLLM starts a worker process for each GPU, but presim has already started a process for each rank. So the engine uses
vLLM's mode for torchrun, ``external_launcher``, in which every rank runs the script and the same scheduler.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any, NoReturn

from presim.capture.script.after_import import when_imported

_OWN_EXECUTORS = (None, "mp", "ray")  # executors that start workers
_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "prefill_context_parallel_size",
    "data_parallel_size",
)


def install(refuse: Callable[[str], NoReturn]) -> None:
    """Install for vLLM; ``refuse`` gets an error message if the number of ranks does not match."""
    when_imported("vllm.engine.arg_utils", functools.partial(_use_ranks, refuse))


def _use_ranks(refuse: Callable[[str], NoReturn], module: Any) -> None:
    arguments = module.EngineArgs
    create = arguments.create_engine_config
    ranks = int(os.environ.get("WORLD_SIZE", "1"))

    @functools.wraps(create)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        workers = math.prod(getattr(self, name, None) or 1 for name in _SIZES)
        if workers > 1 and self.distributed_executor_backend in _OWN_EXECUTORS:
            if workers != ranks:
                refuse(
                    f"vLLM's engine runs on {workers} GPUs, each with its own process, but presim runs {ranks} ranks: "
                    f"use --nodes 1 --gpus-per-node {workers}, or as many nodes as hold them"
                )
            self.distributed_executor_backend = "external_launcher"
        return create(self, *args, **kwargs)

    arguments.create_engine_config = create_engine_config
