"""``megatron_packed.py`` whose optimizer keeps its state and its copy of the weights in bf16, and reads gradients so.

As NeMo-Framework-Launcher's ``peft/llama/sft.yaml`` has it: Apex's ``distributed_fused_adam`` with ``dtype: bf16``.
PyTorch's fused Adam takes its place inside Megatron's optimizer: as many bytes a parameter, kept and moved. Takes the
options of ``megatron_packed.py``, with ``--distributed-optimizer`` and ``--gradients model``.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType

import megatron_gpt
import megatron_packed
import torch
from megatron.core.optimizer import optimizer as megatron_optimizer


def keep_halves() -> None:
    """Let Megatron's optimizer work on bf16 where it has fp32."""
    make = megatron_gpt.get_megatron_optimizer
    megatron_gpt.get_megatron_optimizer = lambda config, chunks: _halved(make(config, chunks))
    megatron_optimizer.clip_grad_by_total_norm_fp32 = _clip  # which takes fp32 alone


def _halved(optimizer):
    for each in getattr(optimizer, "chained_optimizers", [optimizer]):
        for _, main in _pairs(each):
            main.data = main.data.bfloat16()
        each.optimizer = torch.optim.AdamW(each.optimizer.param_groups, fused=True)
        each._copy_model_grads_to_main_grads = MethodType(_take_gradients, each)
    return optimizer


def _take_gradients(each) -> None:
    """Gradients as they were summed, without a copy in fp32."""
    for parameter, main in _pairs(each):
        own = each._get_model_param_range_map(parameter)["param"]
        main.grad = parameter.main_grad.view(-1)[own.start : own.end]


def _clip(parameters, max_norm, total_norm, use_decoupled_grad=False) -> None:
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.tensor(total_norm, device="cuda"), foreach=True)


def _pairs(each) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters of the model, and the part of each that this rank's optimizer keeps."""
    if any(each.model_fp32_groups):
        raise ValueError("parameters in fp32 have no gradients in bf16: give --gradients model and a model in bf16")
    for parameters, mains in zip(each.model_float16_groups, each.shard_fp32_from_float16_groups, strict=True):
        yield from zip(parameters, mains, strict=True)


if __name__ == "__main__":
    megatron_packed.attend_apart(megatron_packed.parse().pieces)
    keep_halves()
    megatron_gpt.main()
