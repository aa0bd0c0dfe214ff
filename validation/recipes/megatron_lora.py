"""Low-rank adapters beside Megatron's linear layers, as NeMo and Megatron-Bridge put them; all else is frozen."""

from __future__ import annotations

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

_ALPHA = 32.0
_SPLIT_ROWS = ("linear_proj", "linear_fc2")  # the weights that tensor parallelism splits along their input


def adapt(model: torch.nn.Module, rank: int, targets: list[str]) -> None:
    """Freeze the model and put an adapter beside each linear layer of these names."""
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in targets:
                setattr(parent, name, Adapted(child, name, rank, model.config))


class Adapted(torch.nn.Module):
    """A frozen linear layer, and its input through two thin matrices, added."""

    def __init__(self, base: torch.nn.Module, name: str, rank: int, config) -> None:
        super().__init__()
        self.base = base
        if hasattr(base, "return_layernorm_output"):  # norm and product are one module: the adapter reads the norm
            base.return_layernorm_output = True
        split = config.tensor_model_parallel_size
        common = {"config": config, "init_method": config.init_method, "bias": False}
        if name in _SPLIT_ROWS:
            inputs, outputs = base.in_features * split, base.out_features
            self.down = RowParallelLinear(inputs, rank, input_is_parallel=True, skip_bias_add=True, **common)
            self.up = torch.nn.Linear(rank, outputs, bias=False, dtype=config.params_dtype, device="cuda")
            self.up.weight.sequence_parallel = config.sequence_parallel
        else:
            inputs, outputs = base.in_features, base.out_features * split
            self.down = ColumnParallelLinear(inputs, rank, gather_output=True, **common)
            self.up = ColumnParallelLinear(rank, outputs, gather_output=False, **common)
            self.up.sequence_parallel = False  # what it reads is whole already
        self.scale = _ALPHA / rank

    def forward(self, x: torch.Tensor):
        """The layer's output with the adapter's, and its bias."""
        output, bias = self.base(x)
        if isinstance(output, tuple):
            output, x = output
        thin = self.down(x)[0]
        wide = self.up(thin)
        wide = wide[0] if isinstance(wide, tuple) else wide
        return output + wide * self.scale, bias
