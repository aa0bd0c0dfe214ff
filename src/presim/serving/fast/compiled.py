"""The compiled scheduler loop, from the same source that also runs uncompiled: see `presim.system.compiled_loops`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.serving.fast import (
    admission,
    batch,
    cost,
    heap,
    lifecycle,
    lockstep,
    loop,
    loras,
    output,
    policy,
    pool,
    queues,
    routing,
    sglang,
    sglang_prompts,
    stages,
    state,
    table,
    tiers,
    windows,
)
from presim.system.compiled_loops import compile_for_pointers

_MODULES = (
    *(state, table, heap, tiers, pool, windows, queues, batch, loras, admission, sglang_prompts, sglang, policy),
    *(output, cost, routing, lifecycle, lockstep, stages, loop),
)
FLOATS = frozenset(
    (
        *("token_ns", "prompt_launch_ns", "decode_launch_ns", "shared_ns", "head_ns", "lora_ns"),
        *("prefill_log", "decode_log", "costs"),
    )
)  # columns that are not int64


@functools.cache
def compiled_run() -> Callable[[state.Program, state.State], int]:
    """`loop.run` for contiguous, writable arrays."""
    return compile_for_pointers(_MODULES, loop.run, _empty(state.Program), _empty(state.State))


def _empty(record: Any) -> Any:
    return record(*(np.zeros(0, np.float64 if name in FLOATS else np.int64) for name in record._fields))
