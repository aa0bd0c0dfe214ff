"""Asynchronous tensor parallelism without the memory that GPUs share.

PyTorch's fused operators (an all-gather and the product of what it gathers, a product and its reduce-scatter) pass
pieces through memory of the other GPUs while they multiply. Making such memory hands handles from process to process,
which absent ranks cannot answer. PyTorch has the same operators as a collective and a product one after the other, for
tests of its own; these run instead, and the result says that what they would overlap is not counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from presim.capture.script.after_import import when_imported

_FUSED = (
    "_fused_all_gather_matmul_fallback",
    "_fused_all_gather_scaled_matmul_fallback",
    "_fused_matmul_reduce_scatter_fallback",
    "_fused_scaled_matmul_reduce_scatter_fallback",
)
_REFUSED = ("rendezvous", "get_symm_mem_workspace")


class SymmetricMemory:
    """Puts the simple operators in place; knows whether one was called."""

    def __init__(self) -> None:
        self.was_fused = False

    def install(self) -> None:
        """As soon as the script imports torch.distributed._symmetric_memory."""
        when_imported("torch.distributed._symmetric_memory", self._replace)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know."""
        if not self.was_fused:
            return ()
        return (
            "Asynchronous tensor parallelism ran as collectives and products one after the other, without symmetric "
            "memory: what it overlaps is not counted, so the step is rather shorter than shown.",
        )

    def _replace(self, module: Any) -> None:
        module._is_test_mode = True  # PyTorch's own name for the operators without shared memory
        groups = module._group_name_to_store
        module.is_symm_mem_enabled_for_group = lambda group_name: group_name in groups
        for name in _FUSED:
            setattr(module, name, self._note(getattr(module, name)))
        for name in _REFUSED:
            setattr(module, name, _refuser(name))

    def _note(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def note(*args: Any, **kwargs: Any) -> Any:
            self.was_fused = True
            return call(*args, **kwargs)

        return note


def _refuser(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"presim does not emulate memory that GPUs share (torch.distributed._symmetric_memory.{name}): switch it "
            "off in the script; its fused operators for tensor parallelism run without it"
        )

    return refuse
