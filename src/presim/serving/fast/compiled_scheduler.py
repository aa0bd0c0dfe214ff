"""The compiled scheduler loop, from the same source that also runs uncompiled: see `presim.system.compiled_loops`."""

from __future__ import annotations

import functools
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.serving.fast import (
    admission,
    arrival_heap,
    batch,
    hash_table,
    lifecycle,
    lockstep,
    loras,
    output,
    policy,
    pool,
    queues,
    request_routing,
    serving_loop,
    serving_state,
    sglang,
    sglang_prompts,
    shared_pool,
    stage_batches,
    step_cost,
    tiers,
    windows,
)
from presim.system.compiled_loops import announce, compile_for_pointers, has_machine_code, in_background

_MODULES = (
    *(
        serving_state,
        hash_table,
        arrival_heap,
        tiers,
        pool,
        shared_pool,
        windows,
        queues,
        batch,
        loras,
        admission,
        sglang_prompts,
        sglang,
        policy,
    ),
    *(output, step_cost, request_routing, lifecycle, lockstep, stage_batches, serving_loop),
)
FLOATS = frozenset(
    (
        *("token_ns", "prompt_launch_ns", "decode_launch_ns", "shared_ns", "head_ns", "lora_ns"),
        *("prefill_log", "decode_log", "costs"),
    )
)  # columns that are not int64


_IN_BACKGROUND = (
    "compiling the serving scheduler for this CPU, once, for about a minute, beside and after this verb; meanwhile it "
    "runs uncompiled. `presim doctor --prepare` compiles all loops ahead of time"
)
_NICE = 5  # niceness of the compilation: the verb that waits for no machine code goes first


@functools.cache
def compiled_run() -> Callable[[serving_state.Program, serving_state.ServingState], int]:
    """`loop.run` for contiguous, writable arrays."""
    return compile_for_pointers(
        _MODULES, serving_loop.run, _empty(serving_state.Program), _empty(serving_state.ServingState)
    )


def is_compiling() -> bool:
    """Whether another process still makes the machine code, as it does from the first call on where there is none.

    Meanwhile `loop.run` gives the same results: a short load ends before the machine code is there.
    """
    compilation = _compilation()
    return compilation is not None and compilation.poll() is None


@functools.cache
def _compilation() -> subprocess.Popen[bytes] | None:
    """The process that makes the machine code, which goes on after this one has ended; None if it is not needed.

    An interrupt of the verb ends it (`compiled_loops.end_background`). Processes of a pool compile for themselves.
    """
    is_in_pool = multiprocessing.parent_process() is not None
    if is_in_pool or has_machine_code(_MODULES) is not False:  # there is some, or none can be kept
        return None
    announce(_IN_BACKGROUND)
    code = f"import os; os.nice({_NICE}); from {__name__} import compiled_run; compiled_run()"
    nothing = subprocess.DEVNULL
    compilation = subprocess.Popen(
        [sys.executable, "-c", code], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    in_background.append(compilation)
    return compilation


def _empty(record: Any) -> Any:
    return record(*(np.zeros(0, np.float64 if name in FLOATS else np.int64) for name in record._fields))
