"""Capture asynchronous tensor parallelism when the other ranks are absent.

PyTorch's fused operators (an all-gather with a product, a product with a reduce-scatter) exchange pieces through other
GPUs' memory while they multiply. Creating such memory exchanges handles between processes, which absent ranks cannot
answer. PyTorch's own code runs on a replacement (`shared_memory`), so that its copies and partial products are on the
right streams. Other uses of such memory are refused.
"""

from __future__ import annotations

from typing import Any, NoReturn

from presim.capture.script.after_import import when_imported

_NATIVE_KERNELS = ("_should_use_fused_all_gather_matmul_native", "_should_use_multimem_all_gather_matmul")


class SymmetricMemory:
    """Installs the replacement and records whether it was used."""

    def __init__(self) -> None:
        self.was_used = False

    def install(self) -> None:
        """Install once the script imports torch.distributed._symmetric_memory."""
        when_imported("torch.distributed._symmetric_memory", self._replace)

    def notes(self) -> tuple[str, ...]:
        """Notes for the result."""
        if not self.was_used:
            return ()
        return (
            "Asynchronous tensor parallelism exchanged its pieces through memory that represents the other GPUs': its "
            "barriers assume that other ranks are as far as this one.",
        )

    def _replace(self, module: Any) -> None:
        groups = module._group_name_to_store
        module.is_symm_mem_enabled_for_group = lambda group_name: group_name in groups
        module.get_symm_mem_workspace = self._workspace
        module.rendezvous = _refuse_rendezvous
        for name in _NATIVE_KERNELS:  # the replacement has none; they serve few rows only
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
        "presim does not emulate shared GPU memory (torch.distributed._symmetric_memory.rendezvous): switch it off in "
        "the script; PyTorch's fused operators for tensor parallelism run without it"
    )
