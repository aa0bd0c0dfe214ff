"""Hybrids of Mamba, attention and MLP or experts: their layers, a letter each, and what Megatron needs to build them.

Shapes and patterns from Megatron-Bridge, ``models/nemotronh/nemotron_h_provider.py``; a test of Megatron-LM says its
own as ``hybrid-layer-pattern``. What predicts further tokens stands behind the layers, after a slash for each token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family.fields import keeps_mxfp8_alone
from presim_study.megatron_family.flags import flags_of
from presim_study.models import plain_name, published_shapes
from presim_study.named_models import Shapes, experts
from presim_study.plan import needs_installed, options

RECIPE, PREDICTING = "megatron_hybrid.py", "megatron_predicting.py"
PREDICTING_MXFP8 = "megatron_predicting_mxfp8.py"  # with no weights in bf16 beside
RECIPES = (RECIPE, PREDICTING, PREDICTING_MXFP8)
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
_NANO_V2 = {
    **_MAMBA,
    **_FIRST_AND_LAST,
    "kv_channels": 128,
    "mamba_head_dim": 80,
    "mamba_state_dim": 128,
    "mamba_num_heads": 128,
}
_SIX = "M-M-M-M-M*-"
_EIGHT, _TEN = "EMEMEMEM*", "EMEMEMEMEM*"
_NANO_3 = "MEMEM*" + "EMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME"
_NANO_3_SHAPES = Shapes(
    *(52, 2688, 1856, 32, 2, 131072),
    fields={
        **_MAMBA,
        "mamba_state_dim": 128,
        "mamba_num_heads": 64,
        "kv_channels": 128,
        **experts(128, 6, 1856, moe_shared_expert_intermediate_size=3712, moe_router_topk_scaling_factor=2.5),
        **_EXPERTS,
    },
)
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
    "nemotronh47b": (
        "M-M-M-M-M-M-M-M-M*-" + "M-M-M-M-M-M-M-M-M-M*-" + "M-M-M-M-M*-" * 2 + "M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-",
        Shapes(
            *(98, 8192, 30720, 64, 8, 131072),
            fields={**_MAMBA, **_FIRST_AND_LAST, "mamba_state_dim": 256, "mamba_num_heads": 256},
        ),
    ),
    "nemotronh4b": (
        "M-M-M-M*-" + _SIX * 3 + "M-M-M-M-M-",
        Shapes(
            *(52, 3072, 12288, 32, 8, 131072),
            fields={
                **_MAMBA,
                **_FIRST_AND_LAST,
                "kv_channels": 128,
                "mamba_state_dim": 128,
                "mamba_num_heads": 112,
            },
        ),
    ),
    "nemotronnano9bv2": (
        "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        Shapes(56, 4480, 15680, 40, 8, 131072, fields=_NANO_V2),
    ),
    "nemotronnano12bv2": (
        "M-M-M-M*-" * 6 + "M-M-M-M-",
        Shapes(62, 5120, 20480, 40, 8, 131072, fields=_NANO_V2),
    ),
    "nemotron3nano": (_NANO_3, _NANO_3_SHAPES),
    "nemotron35lightning": (_NANO_3 + "/*E/*E", _NANO_3_SHAPES),
    "nemotron3super": (
        "MEMEMEM*" + "EMEMEMEM*" * 2 + _TEN * 4 + "EMEMEMEM*EMEMEMEME/*E/*E",
        Shapes(
            *(88, 4096, 2688, 32, 2, 131072),
            fields={
                **_MAMBA,
                "cross_entropy_fusion_impl": "te",
                "mamba_state_dim": 128,
                "mamba_num_heads": 128,
                "kv_channels": 128,
                **experts(512, 22, 2688, moe_shared_expert_intermediate_size=5376, moe_router_topk_scaling_factor=5.0),
                **_EXPERTS,
                "moe_latent_size": 1024,
                "moe_shared_expert_overlap": False,
            },
        ),
    ),
    # nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16: attention is layer 7, 14, 23, 32, 39 ... 98 of 108
    "nemotron3ultra": (
        "MEMEMEM*EMEMEM*" + (_EIGHT * 2 + "EMEMEM*") * 3 + _EIGHT + "EMEMEMEME/*E/*E",
        Shapes(
            *(108, 8192, 5120, 64, 2, 131072),
            fields={
                **_MAMBA,
                "mamba_state_dim": 128,
                "mamba_num_heads": 256,
                "kv_channels": 128,
                **experts(512, 22, 5120, moe_shared_expert_intermediate_size=10240, moe_router_topk_scaling_factor=5.0),
                **_EXPERTS,
                "moe_latent_size": 2048,
                "moe_shared_expert_overlap": False,
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
    if set(said) - set("M*-E/"):  # | between virtual stages
        raise CannotBuildError(f"Megatron-core 0.16 has no virtual stages of hybrids, and the case's layers are {said}")
    name = plain_name(case)
    return said or next((pattern for known, (pattern, _) in _PUBLISHED.items() if name.startswith(known)), None)


def shapes_of(case: Case) -> Shapes | None:
    """Those of a hybrid, published or said by the case's cells; None where the case is of another kind."""
    pattern = pattern_of(case)
    if pattern is None:
        return None
    if not flags_of(case).get("hybrid-layer-pattern"):
        name = plain_name(case)
        return next(shapes for known, (_, shapes) in _PUBLISHED.items() if name.startswith(known))
    layers, predictors = _parts(pattern)
    shapes = published_shapes(Case({**case.row, "n_layers": str(len(layers))}))
    known = _published_as(layers, shapes) if predictors else None
    if known is not None:
        return dataclasses.replace(known, fields={**known.fields, **shapes.fields})
    return dataclasses.replace(shapes, fields={"is_hybrid_model": True, **shapes.fields})


def _parts(pattern: str) -> tuple[str, list[str]]:
    """The layers of the whole, and those of each predictor of a further token."""
    layers, *predictors = pattern.split("/")
    return layers, predictors


def _published_as(layers: str, shapes: Shapes) -> Shapes | None:
    """The published hybrid of these layers and of this width: options of a test do not say what its Mamba is."""
    same = (own for pattern, own in _PUBLISHED.values() if _parts(pattern)[0] == layers and own.hidden == shapes.hidden)
    return next(same, None)


def recipe_of(case: Case, gpu: str) -> tuple[str, tuple[str, ...]] | None:
    """The recipe and what it takes besides the arguments of a decoder's; None where the case is of another kind.

    Raises:
        CannotBuildError: what Mamba's layers need is not installed, or predictors stand in a pipeline.
    """
    pattern = pattern_of(case)
    if pattern is None:
        return None
    for package in ("mamba_ssm", "causal_conv1d"):
        needs_installed(package)
    layers, predictors = _parts(pattern)
    if not predictors and "fp4" not in case.precision():
        return RECIPE, options(pattern=layers)
    if predictors and case.count("pp", 1) > 1:
        raise CannotBuildError("the recipe has no pipeline of hybrids that predict further tokens")
    if len(set(predictors)) > 1:
        raise CannotBuildError(f"the recipe's predictors are all alike, and the case's layers are {pattern}")
    said = flags_of(case)
    one_for_all = not said.get("hybrid-layer-pattern") or said.get("mtp-use-repeated-layer") == "True"  # Bridge's do
    own = bool(predictors) and not one_for_all
    words = options(
        pattern=layers,
        predictor=predictors[0] if predictors else None,
        predictions=len(predictors) or None,
        own_weights=own,
    )
    return PREDICTING_MXFP8 if keeps_mxfp8_alone(case, gpu) else PREDICTING, words
