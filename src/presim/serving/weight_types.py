"""Types of weights of an engine: the checkpoint's own or the user's, and how a GPU and an engine compute with them."""

from __future__ import annotations

import dataclasses

import msgspec

from presim.composition.models.decoder_layers import Layer, WeightType
from presim.composition.models.description import Model
from presim.errors import InputError
from presim.hardware import Gpu
from presim.serving.serving_plan import Kernels, ServingPlan, Weights

# Lowest compute capability x 10 + minor with kernels for a type in vLLM 0.33 (model_executor/layers/quantization,
# `get_min_capability`); fp8 and fp4 below their tensor cores run as 16-bit products on unpacked weights (Marlin).
_LOWEST: dict[WeightType, int] = {
    "fp8": 75, "fp8-block": 75, "fp4": 75, "fp4-only": 75, "mxfp4": 80, "int4": 75, "int8": 75, "int8-only": 75,
}  # fmt: skip
_INT8_END = 100  # vLLM has no INT8 products from Blackwell on (docs/features/quantization)
_UNPACKED: dict[WeightType, WeightType] = {"fp8": "int8-only", "fp8-block": "int8-only", "fp4": "fp4-only"}
# Methods of checkpoints that each engine loads: vLLM 0.33's `QUANTIZATION_METHODS`, SGLang 0.5.23's
# `server_args.quantization`; TensorRT-LLM 1.0's recipes (FP4, FP8 by tensor, block and row, W4A16 AWQ and GPTQ) are in
# https://nvidia.github.io/TensorRT-LLM/1.0.0/features/quantization.html, gpt-oss's MXFP4 in
# https://cookbook.openai.com/articles/run-nvidia
_COMMON = ("fp8", "awq", "gptq", "modelopt", "mxfp4")
_METHODS: dict[Kernels, tuple[str, ...]] = {
    "vllm": (
        *_COMMON, "fbgemm_fp8", "compressed-tensors", "bitsandbytes", "experts_int8", "auto-round", "mxfp8", "quark",
        "torchao",
    ),
    "sglang": (*_COMMON, "compressed-tensors", "bitsandbytes", "auto-round", "mxfp8", "quark"),
    "trtllm": _COMMON,
}  # fmt: skip


def typed(plan: ServingPlan, model: Model, weights: Weights | None, experts: Weights | None) -> ServingPlan:
    """The plan with the user's types, or with the checkpoint's where the user names none.

    Raises:
        InputError: the checkpoint's types are not known here, or its method is none of the engine's.
    """
    if weights is not None:
        return dataclasses.replace(plan, weights=weights, expert_weights=experts)
    checkpoint = model.checkpoint
    if checkpoint.problem:
        raise InputError(f"{model.name} {checkpoint.problem}; say --weights, e.g. --weights fp8")
    if checkpoint.method and checkpoint.method not in _METHODS[plan.kernels]:
        engines = [engine for engine, methods in _METHODS.items() if checkpoint.method in methods]
        raise InputError(
            f"{model.name} is a checkpoint of {checkpoint.method}, which {plan.kernels} does not load; use --kernels "
            f"{' or '.join(engines)}, or say --weights for another checkpoint"
        )
    of_experts = experts or (checkpoint.experts if checkpoint.experts != checkpoint.weights else None)
    published = experts is None
    return dataclasses.replace(plan, weights=checkpoint.weights, expert_weights=of_experts, as_published=published)


def check(model: Model, plan: ServingPlan, gpu: Gpu) -> None:
    """Refuse types that the engine has no kernels for on a GPU.

    Raises:
        InputError: says which types or GPUs work.
    """
    capability = gpu.compute_major * 10 + gpu.compute_minor
    for kind in sorted(_used(model, plan) - {"bf16"}):
        if gpu.vendor != "nvidia":
            if kind in ("fp4", "fp4-only") or (kind.startswith("fp8") and not gpu.peak("fp8")):
                works = "fp8" if gpu.peak("fp8") else "bf16"
                raise InputError(f"engines have no kernels for {kind} weights on a {gpu.name}; use --weights {works}")
            continue
        if capability < _LOWEST[kind]:
            raise InputError(
                f"{gpu.name} has compute capability {gpu.compute_major}.{gpu.compute_minor}; {kind} weights need "
                f"{_LOWEST[kind] / 10:g} or later: use --weights bf16, or a newer GPU"
            )
        if kind == "int8" and capability >= _INT8_END:
            raise InputError(
                f"engines have no INT8 products on a {gpu.name} (compute capability 10 or later); use an FP8 or NVFP4 "
                "checkpoint, say --weights fp8, or take an H100"
            )


def _used(model: Model, plan: ServingPlan) -> set[WeightType]:
    if not plan.as_published:
        return {plan.weights, plan.of_experts}
    return {weight.stored for kind in model.kinds for weight in kind.weights}


def as_computed(model: Model, plan: ServingPlan, gpu: Gpu) -> tuple[Model, ServingPlan]:
    """Model and plan with the types by which a GPU multiplies: unpacked ones where it has no products of few bits."""
    unpacked = {kind: plain for kind, plain in _UNPACKED.items() if not gpu.peak(kind.split("-")[0])}
    if gpu.vendor != "nvidia" or not unpacked.keys() & _used(model, plan):
        return model, plan
    kinds = tuple(_replaced(kind, unpacked) for kind in model.kinds)
    types = unpacked.get(plan.weights, plan.weights), unpacked.get(plan.of_experts, plan.of_experts)
    return msgspec.structs.replace(model, kinds=kinds), dataclasses.replace(
        plan, weights=types[0], expert_weights=types[1]
    )


def _replaced(layer: Layer, types: dict[WeightType, WeightType]) -> Layer:
    weights = tuple(
        msgspec.structs.replace(weight, stored=types.get(weight.stored, weight.stored)) for weight in layer.weights
    )
    return msgspec.structs.replace(layer, weights=weights)
