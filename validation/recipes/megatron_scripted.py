"""``megatron_gpt.py`` with fused functions as Megatron-DeepSpeed has them: TorchScript, extensions, no torch.compile.

Megatron-core compiles its fused functions where PyTorch is 2.2 or newer; the fork that DeepSpeed trains with scripts
them, which takes a third of the host's time for each call. PyTorch's fuser makes one kernel of each; an operator around
it says what it reads and writes. Its softmax is an extension, one kernel that scales and masks as well: PyTorch's plain
softmax moves as much, and is called as quickly. The numbers are not those of a model.

Takes the options of ``megatron_gpt.py``.
"""

from __future__ import annotations

import megatron_gpt
import scaled_upper_triang_masked_softmax_cuda
import torch
from megatron.core.fusions import fused_bias_dropout, fused_bias_gelu

_library = torch.library.Library("megatron_scripted", "DEF")


def install() -> None:
    """What a dense layer of a GPT calls."""
    _script("bias_gelu", "(Tensor bias, Tensor y) -> Tensor")
    _script("bias_gelu_back", "(Tensor g, Tensor bias, Tensor y) -> Tensor")
    fused_bias_dropout.bias_dropout_add_fused_train = _scripted(fused_bias_dropout.bias_dropout_add_fused_train)
    scaled_upper_triang_masked_softmax_cuda.forward = lambda scores, scale: torch.softmax(scores, -1)
    scaled_upper_triang_masked_softmax_cuda.backward = _softmax_backward


def _script(name: str, schema: str) -> None:
    _library.define(name + schema)
    _library.impl(name, _scripted(getattr(fused_bias_gelu, name)), "CUDA")
    setattr(fused_bias_gelu, name, getattr(torch.ops.megatron_scripted, name).default)


def _scripted(compiled):
    """As TorchScript, what torch.compile was given."""
    return torch.jit.script(compiled._torchdynamo_orig_callable)


def _softmax_backward(gradients: torch.Tensor, results: torch.Tensor, scale: float) -> torch.Tensor:
    return torch._softmax_backward_data(gradients, results, -1, results.dtype)


if __name__ == "__main__":
    install()
    megatron_gpt.main()
