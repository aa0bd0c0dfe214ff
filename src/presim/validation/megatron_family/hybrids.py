"""Hybrids of Mamba, attention and MLP or experts: their layers, a letter each, and what Megatron needs to build them.

Shapes and patterns from Megatron-Bridge, ``models/nemotronh/nemotron_h_provider.py``; a test of Megatron-LM says its
own as ``hybrid-layer-pattern``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from presim.validation.cases import CannotBuildError, Case
from presim.validation.megatron_family.flags import flags_of
from presim.validation.models import Shapes, experts, plain_name, published_shapes
from presim.validation.plan import needs_installed

RECIPE = "megatron_hybrid.py"
_MAMBA = {
    "is_hybrid_model": True,
    "mamba_head_dim": 64,
    "mamba_num_groups": 8,
    "cross_entropy_fusion_impl": "native",
}
_FIRST_AND_LAST = {  # layers that FP8 leaves out, in NeMo's and Bridge's precision of Nemotron-H
    "first_last_layers_bf16": True,
    "num_layers_at_start_in_bf16": 2,
    "num_layers_at_end_in_bf16": 2,
}
_EXPERTS = {
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "moe_router_dtype": "fp32",
    "use_fused_weighted_squared_relu": True,
}
_SIX = "M-M-M-M-M*-"
_PUBLISHED: Mapping[str, tuple[str, Shapes]] = {
    "nemotronh56b": (
        "M-M-M-M*-" + _SIX * 9 + "M-M-M-M-M-",
        Shapes(
            118,
            8192,
            32768,
            64,
            8,
            131072,
            fields={**_MAMBA, **_FIRST_AND_LAST, "mamba_state_dim": 256, "mamba_num_heads": 256},
        ),
    ),
    "nemotronh8b": (
        "M-M-M-M*-" + _SIX * 3 + "M-M-M-M-M-",
        Shapes(
            52,
            4096,
            21504,
            32,
            8,
            131072,
            fields={**_MAMBA, **_FIRST_AND_LAST, "mamba_state_dim": 128, "mamba_num_heads": 128},
        ),
    ),
    "nemotron3nano": (
        "MEMEM*" + "EMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME",
        Shapes(
            *(52, 2688, 1856, 32, 2, 131072),
            fields={
                **_MAMBA,
                "mamba_state_dim": 128,
                "mamba_num_heads": 64,
                "kv_channels": 128,
                **experts(128, 6, 1856, moe_shared_expert_intermediate_size=3712, moe_router_topk_scaling_factor=2.5),
                **_EXPERTS,
            },
        ),
    ),
}


def pattern_of(case: Case) -> str | None:
    """A letter a layer: M Mamba, * attention, - MLP, E experts; None where the case is of another kind.

    Raises:
        CannotBuildError: the case splits a hybrid as Megatron-core cannot.
    """
    said = flags_of(case).get("hybrid-layer-pattern", "")
    if set(said) - set("M*-E"):  # | between virtual stages, / before what predicts a further token
        raise CannotBuildError(
            f"Megatron-core 0.16 has neither virtual stages nor predictors of hybrids, and the case's layers are {said}"
        )
    name = plain_name(case)
    return said or next((pattern for known, (pattern, _) in _PUBLISHED.items() if name.startswith(known)), None)


def shapes_of(case: Case) -> Shapes | None:
    """Those of a hybrid, published or said by the case's cells; None where the case is of another kind."""
    pattern = pattern_of(case)
    if pattern is None:
        return None
    if flags_of(case).get("hybrid-layer-pattern"):
        shapes = published_shapes(Case({**case.row, "n_layers": str(len(pattern))}))
        return dataclasses.replace(shapes, fields={"is_hybrid_model": True, **shapes.fields})
    name = plain_name(case)
    return next(shapes for known, (_, shapes) in _PUBLISHED.items() if name.startswith(known))


def arguments(pattern: str) -> tuple[str, ...]:
    """What the recipe takes besides the arguments of a decoder's.

    Raises:
        CannotBuildError: what Mamba's layers need is not installed.
    """
    for package in ("mamba_ssm", "causal_conv1d"):
        needs_installed(package, f"the recipe {RECIPE} says how")
    return ("--pattern", pattern)
