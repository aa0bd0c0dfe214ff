"""``megatron_gpt.py`` whose frozen weights in FP8 are transposed for each product anew, and kept one way only.

Ada and Hopper multiply FP8 with both operands along the sum, so that the gradient of a layer's input reads its weight's
transpose. Transformer Engine 2 keeps what it has transposed; before, with ``disable_parameter_transpose_cache``, it
made the transpose for the one product. Takes the options of ``megatron_gpt.py``, with ``--lora``.
"""

from __future__ import annotations

from functools import partial

import megatron_gpt
import torch
from transformer_engine.pytorch.tensor import Float8Tensor


def begin_without_transposes() -> None:
    """Transformer Engine makes them with the weights, unless nothing is to be differentiated."""
    make = megatron_gpt.GPTModel
    megatron_gpt.GPTModel = torch.no_grad()(lambda *parts, **settings: make(*parts, **settings))


def drop_transposes() -> None:
    """Of what adapters leave frozen, once a layer's gradients are there."""
    adapt = megatron_gpt.megatron_lora.adapt

    def adapt_and_drop(model: torch.nn.Module, *options) -> None:
        adapt(model, *options)
        for module in model.modules():
            if isinstance(getattr(module, "weight", None), Float8Tensor) and not module.weight.requires_grad:
                module.register_forward_pre_hook(_drop_behind)

    megatron_gpt.megatron_lora.adapt = adapt_and_drop


def _drop_behind(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Let the gradient of the layer's input be the last that reads the transpose."""
    if inputs[0].requires_grad:
        inputs[0].register_hook(partial(_drop, module.weight))


def _drop(weight: Float8Tensor, gradient: torch.Tensor) -> None:
    weight.update_usage(columnwise_usage=False)


if __name__ == "__main__":
    begin_without_transposes()
    drop_transposes()
    megatron_gpt.main()
