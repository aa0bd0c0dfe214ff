"""Captures the worker process that vLLM starts for each GPU.

Each rank is such a process already. So the engine takes the ranks that it finds, by what vLLM has for torchrun: its
``external_launcher``, where every rank runs the script and the same scheduler.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any, NoReturn

from presim.capture.script.after_import import when_imported

_OF_ITS_OWN = (None, "mp", "ray")  # executors that start workers
_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "prefill_context_parallel_size",
    "data_parallel_size",
)


def install(refuse: Callable[[str], NoReturn]) -> None:
    """Where vLLM is imported; ``refuse`` is called with a sentence where the number of ranks does not fit."""
    when_imported("vllm.engine.arg_utils", functools.partial(_take_ranks, refuse))


def _take_ranks(refuse: Callable[[str], NoReturn], module: Any) -> None:
    arguments = module.EngineArgs
    create = arguments.create_engine_config
    ranks = int(os.environ.get("WORLD_SIZE", "1"))

    @functools.wraps(create)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        workers = math.prod(getattr(self, name, None) or 1 for name in _SIZES)
        if workers > 1 and self.distributed_executor_backend in _OF_ITS_OWN:
            if workers != ranks:
                refuse(
                    f"vLLM's engine runs on {workers} GPUs, each with a process of its own, and presim was told of "
                    f"{ranks}: say --nodes 1 --gpus-per-node {workers}, or the nodes that hold them"
                )
            self.distributed_executor_backend = "external_launcher"
        return create(self, *args, **kwargs)

    arguments.create_engine_config = create_engine_config
