"""Mark the optimizer step of DeepSpeed's engine, which calls the wrapped optimizer several times or never.

ZeRO steps its optimizer once per parameter group, skips it if gradients overflowed, and does its own work before and
after (unscaling, clipping, gathering updated parameters). So the engine's step is the training step.

ZeRO-3 compares the order of modules with rank 0's by a broadcast whose values it reads: eight bytes per module that
ran. The emulated device keeps no values of tensors above 64 KiB, which deep models with adapters exceed, so these lists
are sent in pieces.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from presim.capture.script.after_import import when_imported

_NUMBERS = 4096  # of eight bytes each: half of the size that keeps its values (shim/core/transfer.h)


def install(whole_step: Callable[[], AbstractContextManager[None]], expect_update: Callable[[], None]) -> None:
    """Run each step of a DeepSpeed engine inside ``whole_step()``; no effect without DeepSpeed.

    ``expect_update`` is called for an engine with an optimizer. With ZeRO-3 the optimizer holds parameters only while
    it steps, so it does not show that micro-batches are parts of a step.
    """

    def wrap(module: Any) -> None:
        engine = module.DeepSpeedEngine
        make = engine.__init__

        @functools.wraps(make)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            make(self, *args, **kwargs)
            if getattr(self, "optimizer", None) is not None:
                expect_update()

        engine.__init__ = init
        take_step = engine._take_model_step

        @functools.wraps(take_step)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            with whole_step(), torch.profiler.record_function("Optimizer.step#DeepSpeedEngine.step"):
                return take_step(self, *args, **kwargs)

        engine._take_model_step = step

    when_imported("deepspeed.runtime.engine", wrap)
    when_imported("deepspeed.runtime.zero.utils", _broadcast_in_pieces)


def _broadcast_in_pieces(module: Any) -> None:
    broadcast = module.get_lst_from_rank0

    @functools.wraps(broadcast)
    def in_pieces(lst: list[int]) -> list[int]:
        return [number for start in range(0, len(lst), _NUMBERS) for number in broadcast(lst[start : start + _NUMBERS])]

    module.get_lst_from_rank0 = in_pieces
