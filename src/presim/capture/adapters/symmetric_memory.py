"""Captures asynchronous tensor parallelism when the other ranks are absent.

PyTorch's fused operators (an all-gather and the product of what it gathers, a product and its reduce-scatter) pass
pieces through memory of the other GPUs while they multiply. Making such memory hands handles from process to process,
which absent ranks cannot answer; PyTorch's own code runs on a stand-in for it (`shared_memory`), so that its copies and
partial products are on the streams where they would be. Other uses of such memory are refused.
"""

from __future__ import annotations

from typing import Any, NoReturn

from presim.capture.script.after_import import when_imported

_KERNELS_OF_THEIR_OWN = ("_should_use_fused_all_gather_matmul_native", "_should_use_multimem_all_gather_matmul")


class SymmetricMemory:
    """Puts the stand-in in place; knows whether it was used."""

    def __init__(self) -> None:
        self.was_used = False

    def install(self) -> None:
        """As soon as the script imports torch.distributed._symmetric_memory."""
        when_imported("torch.distributed._symmetric_memory", self._replace)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know."""
        if not self.was_used:
            return ()
        return (
            "Asynchronous tensor parallelism passed its pieces through memory that stands for the other GPUs': its "
            "barriers take other ranks to be as far as this one.",
        )

    def _replace(self, module: Any) -> None:
        groups = module._group_name_to_store
        module.is_symm_mem_enabled_for_group = lambda group_name: group_name in groups
        module.get_symm_mem_workspace = self._workspace
        module.rendezvous = _refuse_rendezvous
        for name in _KERNELS_OF_THEIR_OWN:  # of which the stand-in has none; for few rows only
            if hasattr(module, name):
                setattr(module, name, _never)

    def _workspace(self, group_name: str, min_size: int) -> Any:
        from presim.capture.adapters.shared_memory import workspace  # imports torch

        self.was_used = True
        return workspace(group_name, min_size)


def _never(*args: Any, **kwargs: Any) -> bool:
    return False


def _refuse_rendezvous(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        "presim does not emulate memory that GPUs share (torch.distributed._symmetric_memory.rendezvous): switch it "
        "off in the script; its fused operators for tensor parallelism run without it"
    )
