"""Types of weights in a checkpoint of compressed-tensors: groups of modules, and those that stay in 16 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from presim.composition.models.decoder_layers import WeightType
from presim.composition.models.module_patterns import Patterns, listed, names_of

Typed = Callable[[str], WeightType | None]  # by a module's name; None: 16 bits


class UnknownTypes(Exception):
    """A quantisation that presim does not price, as the end of a sentence that begins with the model's name."""


def typed_by_groups(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    """Types by module of a checkpoint of compressed-tensors; a group that names modules stands before one of a class.

    Raises:
        UnknownTypes: presim does not price what a group says.
    """
    sparsity = quantization.get("sparsity_config") or {}
    if sparsity.get("format") not in (None, "dense"):
        raise UnknownTypes(
            f"has sparse weights ({sparsity['format']} in compressed-tensors), which presim does not price"
        )
    groups = quantization.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise UnknownTypes("has compressed-tensors without config_groups, which say the types of weights")
    kinds = [
        (group.get("targets") or ["Linear"], _group(group, str(quantization.get("format"))))
        for group in groups.values()
    ]
    targets_by_name = [(Patterns(target for target in targets if target != "Linear"), kind) for targets, kind in kinds]
    by_class = [kind for targets, kind in kinds if "Linear" in targets]
    left_out = Patterns(listed(quantization))

    def typed(module: str) -> WeightType | None:
        names = names_of(module)
        if left_out.fit(module, names):
            return None
        by_name = [kind for targets, kind in targets_by_name if targets.fit(module, names)]
        return next(iter([*by_name, *by_class]), None)

    return typed


def _group(group: Mapping[str, Any], file_format: str) -> WeightType:
    """The type of a group of compressed-tensors, by its weights and whether inputs are quantised, too."""
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, dict):
        raise UnknownTypes("has a group of compressed-tensors that does not quantise weights")
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    if weights.get("sparsity") or "marlin-24" in file_format:
        raise UnknownTypes("has 2:4 sparse weights (marlin-24), which presim does not price")
    if (kind, bits) == ("float", 8):
        return "int8-only" if not inputs else "fp8-block" if strategy in ("block", "group") else "fp8"
    if (kind, bits) == ("float", 4):
        if weights.get("group_size") == 32:
            return "mxfp4"
        return "fp4" if inputs else "fp4-only"
    if (kind, bits) == ("int", 8):
        return "int8" if inputs else "int8-only"
    if (kind, bits) == ("int", 4) and not inputs:
        return "int4"
    raise UnknownTypes(
        f"has weights of {bits} bits ({kind}) with {'quantised' if inputs else '16-bit'} inputs in compressed-tensors, "
        "which presim does not price"
    )
