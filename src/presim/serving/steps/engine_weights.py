"""Bytes of a model's weights on one GPU of an engine, as the engine's kernels keep them."""

from __future__ import annotations

import dataclasses
import math

import msgspec

from presim.composition.models.decoder_layers import Latent, Layer, Weight
from presim.composition.models.description import Model
from presim.hardware import Gpu
from presim.serving.drafting import drafter
from presim.serving.serving_plan import WEIGHT_BYTES, ServingPlan, Weights, stage_ends
from presim.serving.steps.lora import adapter_bytes

# Kernels for MXFP4 take experts' inputs and widths of multiples (vLLM 0.33, `mxfp4_round_up_hidden_size_and_
# intermediate_size`), here those that vLLM chooses for gpt-oss: OpenAI's in Triton on Hopper, FlashInfer's on
# Blackwell, Marlin elsewhere. gpt-oss-120b takes 64.4 GiB of an H100 (llm-d's logs of 0.11), and 65.97 by Marlin, which
# an installation without `triton_kernels` uses (vllm-project/vllm#23278); -20b takes 13.5 and 13.72 of an A100.
_MXFP4_MULTIPLE = 256  # of an expert's inputs
_MXFP4_WIDTH_MULTIPLE = 128
_MXFP4_WIDTH_MULTIPLES = {"hopper": 64, "cdna3": 256, "cdna4": 256}


def weight_bytes(model: Model, plan: ServingPlan, gpu: Gpu) -> int:
    """Weights of one rank of the fullest stage, the slots of LoRA adapters with them."""
    return max(
        _stage_bytes(model, plan, gpu, first, end) for first, end in stage_ends(model.layers, plan.pp)
    ) + _drafter_bytes(model, plan, gpu)


def _stage_bytes(model: Model, plan: ServingPlan, gpu: Gpu, first: int, end: int) -> int:
    layers = model.counts(first, end)
    held_bytes = sum(count * _layer_bytes(layer, plan, gpu) for layer, count in layers)
    is_first, is_last = first == 0, end == model.layers
    for weight in model.outside:
        is_here = (
            is_last if weight.part == "head" else is_first or (weight.part == "embedding" and model.tied and is_last)
        )
        held_bytes += 2 * weight.elements / _ranks(weight, plan) if is_here else 0
    return int(held_bytes) + (adapter_bytes(layers, model.hidden, plan) if plan.max_loras else 0)


def _layer_bytes(layer: Layer, plan: ServingPlan, gpu: Gpu) -> float:
    held_bytes = sum(
        weight.elements * _padding(weight, layer, plan, gpu) * WEIGHT_BYTES[_type(weight, plan)] / _ranks(weight, plan)
        for weight in layer.weights
    )
    return held_bytes + sum(_absorbed_bytes(mixer, plan) for mixer in layer.mixers if isinstance(mixer, Latent))


def _padding(weight: Weight, layer: Layer, plan: ServingPlan, gpu: Gpu) -> float:
    """By which vLLM's kernels for MXFP4 make experts larger than they are."""
    experts = layer.experts
    if weight.part != "experts" or experts is None or plan.kernels != "vllm" or _type(weight, plan) != "mxfp4":
        return 1.0
    width = experts.width / (1 if plan.ep else plan.tp * plan.dp)
    width_multiple = _MXFP4_WIDTH_MULTIPLES.get(gpu.architecture, _MXFP4_WIDTH_MULTIPLE)
    return (
        math.ceil(experts.hidden / _MXFP4_MULTIPLE)
        * _MXFP4_MULTIPLE
        / experts.hidden
        * (math.ceil(width / width_multiple) * width_multiple / width)
    )


def _type(weight: Weight, plan: ServingPlan) -> Weights:
    if weight.part not in ("mixer", "dense", "shared", "experts"):
        return weight.stored if plan.as_published else "bf16"
    if plan.as_published:
        return weight.stored
    return plan.of_experts if weight.part == "experts" else plan.weights


# Projections of latent attention and of its indexer that every rank has whole (vLLM 0.33's ReplicatedLinear)
_REPLICATED = ("q_a_proj", "kv_a_proj_with_mqa", "kv_a_proj", "wq_b", "wk", "weights_proj", "kv_proj")


def _ranks(weight: Weight, plan: ServingPlan) -> int:
    """Ranks that divide a weight."""
    if weight.part == "experts":
        return plan.tp * plan.dp
    if weight.part in ("router", "small", "beside"):
        return 1
    return 1 if weight.name.removesuffix(".weight").rpartition(".")[2] in _REPLICATED else plan.tp


def _drafter_bytes(model: Model, plan: ServingPlan, gpu: Gpu) -> int:
    """Weights of the drafter; its embedding and logits are the model's unless it is a model of its own."""
    proposes = _drafter(model, plan)
    if proposes is None:
        return 0
    drafter_plan = dataclasses.replace(plan, drafting=None, pp=1, max_loras=0)
    if plan.drafting is not None and plan.drafting.model is None:
        proposes = msgspec.structs.replace(proposes, outside=())
    return weight_bytes(proposes, drafter_plan, gpu)


def _absorbed_bytes(mixer: Latent, plan: ServingPlan) -> int:
    """16-bit copies of latent attention's up-projections, which decodes multiply with queries and outputs instead."""
    if plan.weights == "bf16" or mixer.expanded:
        return 0
    return 2 * mixer.heads // plan.tp * (mixer.nope + mixer.value) * mixer.rank


def _drafter(model: Model, plan: ServingPlan) -> Model | None:
    return drafter(model, plan.drafting) if plan.drafting else None
