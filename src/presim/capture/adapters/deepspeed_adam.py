"""Let DeepSpeed's fused Adam run without a CUDA toolkit: PyTorch's fused kernel stands for its own.

``"optimizer": {"type": "AdamW"}`` of DeepSpeed's configuration is a CUDA extension that is compiled at its first use,
with nvcc and CUDA's headers. Both kernels are apex's multi-tensor Adam: they read parameters, gradients and two moments
once, write all but the gradients, and take 65,536 elements per block and 320 blocks per launch.
"""

from __future__ import annotations

from typing import Any

import torch

from presim.capture.script.after_import import when_imported


def install() -> None:
    """Install for scripts that import DeepSpeed's optimizer; no effect without DeepSpeed."""
    when_imported("deepspeed.ops.adam.fused_adam", _replace_builder)


def _replace_builder(module: Any) -> None:
    module.FusedAdamBuilder = _FusedAdamBuilder


class _FusedAdamBuilder:
    """In place of the builder that compiles the extension."""

    def load(self) -> type[_FusedAdam]:
        """What has the extension's functions."""
        return _FusedAdam


class _FusedAdam:
    """The extension's functions."""

    @staticmethod
    @torch.no_grad()
    def multi_tensor_adam(
        chunk_elements: int,
        overflow: torch.Tensor,
        lists: list[list[torch.Tensor]],
        learning_rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: int,
        is_decoupled: int,
        bias_correction: int,
        weight_decay: float,
    ) -> None:
        """Update parameters; ``lists``: gradients, parameters, first and second moments of equal types."""
        gradients, parameters, averages, squares = lists
        if not parameters:
            return
        update = torch._fused_adamw_ if is_decoupled else torch._fused_adam_
        update(
            parameters,
            gradients,
            averages,
            squares,
            [],
            [_step_number(parameters[0].device)] * len(parameters),
            lr=learning_rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=epsilon,
            amsgrad=False,
            maximize=False,
        )


_step_numbers: dict[torch.device, torch.Tensor] = {}


def _step_number(device: torch.device) -> torch.Tensor:
    """A step number on the device, which PyTorch's kernel reads and DeepSpeed's gets as an argument: always 1."""
    if device not in _step_numbers:
        _step_numbers[device] = torch.ones((), device=device)
    return _step_numbers[device]
