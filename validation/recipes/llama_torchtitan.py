"""``llama_fsdp2.py`` as torchtitan ran it until the summer of 2025.

Its attention was PyTorch's flash attention, cuDNN's from compute capability 10 on only; where FP8 was scaled by the
tensor, tensor parallelism gathered activations in 8 bits; and selective checkpointing kept the maxima that FP8 is
scaled by (pytorch/torchtitan: ``models/attention.py``, ``models/llama3/infra/parallelize.py``). Takes the options of
``llama_fsdp2.py``.
"""

from __future__ import annotations

import llama_fsdp2
import torch
import torch._inductor.config
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)


def in_8_bits(style: ParallelStyle) -> ParallelStyle:
    """What splits a product in FP8 where ``style`` splits another."""
    from torchao.float8 import float8_tensor_parallel as float8

    if isinstance(style, ColwiseParallel):
        return float8.Float8ColwiseParallel()
    if isinstance(style, RowwiseParallel):
        return float8.Float8RowwiseParallel(output_layouts=style.output_layouts[0])
    if isinstance(style, PrepareModuleInput):
        return float8.PrepareFloat8ModuleInput(
            input_layouts=style.input_layouts, desired_input_layouts=style.desired_input_layouts
        )
    return style


def split_block(module: torch.nn.Module, mesh, plan: dict[str, ParallelStyle]) -> torch.nn.Module:
    """The products of a block in FP8; what is around the blocks stays in bf16."""
    if isinstance(module, llama_fsdp2.Block):
        plan = {name: in_8_bits(style) for name, style in plan.items()}
    return parallelize_module(module, mesh, plan)


if __name__ == "__main__":
    torch.backends.cuda.enable_cudnn_sdp(torch.cuda.get_device_capability() >= (10, 0))
    torch._inductor.config.size_asserts = False  # PyTorch 2.14 expects other strides of flash attention's gradients
    llama_fsdp2._SAVED.add(torch.ops.aten.max.default)
    if llama_fsdp2.parse().float8 == "tensorwise":
        llama_fsdp2.parallelize_module = split_block
    llama_fsdp2.main()
