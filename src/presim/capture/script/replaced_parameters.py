"""Sizes of parameters that a framework replaces by other tensors."""

from __future__ import annotations

import math

import torch


def model_elements(model: torch.nn.Module) -> int:
    """Number of parameters of a whole model, over all ranks that share it.

    FSDP1 exposes shards as parameters and keeps the full size of each flat parameter in a handle of the wrapped module.
    """
    handles = [getattr(module, "_handle", None) for module in model.modules()]
    flat = [handle.flat_param for handle in handles if handle is not None and hasattr(handle, "flat_param")]
    if flat:
        return sum(math.prod(parameter._unpadded_unsharded_size) for parameter in flat)
    return sum(elements(parameter) for parameter in torch.nn.Module.parameters(model))


def elements(parameter: torch.Tensor) -> int:
    """Elements of the whole parameter, independent of sharding and packing.

    ZeRO-3 leaves an empty tensor with the true size in an attribute; bitsandbytes packs two weights into a byte and
    keeps their shape beside the scales.
    """
    unpartitioned_elements = getattr(parameter, "ds_numel", None)
    if unpartitioned_elements is not None:
        return int(unpartitioned_elements)
    packed = getattr(parameter, "quant_state", None)
    return parameter.numel() if packed is None else math.prod(packed.shape)


def own_part(parameter: torch.Tensor) -> torch.Tensor:
    """The part of a parameter on this rank: the shard of a DTensor or of ZeRO-3, any other parameter unchanged."""
    shard = getattr(parameter, "ds_tensor", None)
    return shard if shard is not None else getattr(parameter, "_local_tensor", parameter)
