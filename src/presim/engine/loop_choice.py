"""Chooses between the interpreted and the compiled loop; both give the same result."""

from __future__ import annotations

import os

from presim.engine.compiled_loop import compiled_run, is_on_disk

# A process interprets until that has cost as much CPU time as the compiled loop would: to load it from disk (0.06 s),
# else to compile it (26 s), on a busy machine that interprets an op in 20 us. So it never takes more than twice the
# time of the better choice.
LOADING_OPS = 5_000
COMPILING_OPS = 1_000_000
_SWITCH = "PRESIM_ENGINE"  # compiled or interpreted


class InterpretedOps:
    """Number of ops that this process has interpreted, or was about to."""

    count = 0


def prefer_compiled() -> None:
    """Load the compiled loop, and use it from now on: for processes that simulate many small programs."""
    compiled_run()
    InterpretedOps.count = COMPILING_OPS


def is_compiled(choice: bool | None, ops: int) -> bool:
    """Whether to use the compiled loop for the next ``ops`` ops.

    ``choice``: of the caller; None: PRESIM_ENGINE decides, else the loop that is expected to take less time.
    """
    if choice is not None:
        return choice
    switch = os.environ.get(_SWITCH, "")
    if switch:
        return switch == "compiled"
    InterpretedOps.count += ops
    count = InterpretedOps.count
    return count >= COMPILING_OPS or (count >= LOADING_OPS and is_on_disk())
