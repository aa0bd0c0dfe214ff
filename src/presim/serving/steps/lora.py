"""What LoRA adapters add: their products in each step, and the memory of those that are on the GPU.

As vLLM's Punica kernels compute them (vllm/lora/layers): for each linear layer one kernel that shrinks the input to the
rank, and one that expands it to the output, over all adapters of the batch at once. Adapters are of the attention's
projections and of dense feed-forwards; those of experts, of embeddings and of logits are not modelled.
"""

from __future__ import annotations

import math

from presim.serving.model import Model
from presim.serving.plan import Plan
from presim.trace.signatures import Gemm

_HALF = "bfloat16"


def _widths(model: Model, plan: Plan, *, dense: bool) -> list[tuple[int, int, int]]:
    """(inputs, outputs, slices) of one rank's linear layers that adapters change."""
    heads, kv_heads = model.heads // plan.tp, max(model.kv_heads // plan.tp, 1)
    layers = [
        (model.hidden, (heads + 2 * kv_heads) * model.head_dim, 3),
        (heads * model.head_dim, model.hidden, 1),
    ]
    if dense:
        local = max(model.width // plan.tp, 1)
        layers += [(model.hidden, 2 * local, 2), (local, model.hidden, 1)]
    return layers


def adapted(model: Model, plan: Plan, *, dense: bool) -> int:
    """Linear layers that adapters change in one layer of the model."""
    return len(_widths(model, plan, dense=dense))


def products(model: Model, plan: Plan, tokens: int, *, dense: bool) -> list[Gemm]:
    """Of one layer, for so many tokens that have adapters: spread evenly over as many adapters as a batch may hold."""
    adapters = max(min(plan.max_loras, tokens), 1)
    each = -(-tokens // adapters)
    works = []
    for inputs, outputs, slices in _widths(model, plan, dense=dense):
        works.append(Gemm(each, slices * plan.lora_rank, inputs, adapters, _HALF, layout="NT"))
        works.append(Gemm(each, outputs, plan.lora_rank, adapters, _HALF, layout="NT", accumulate=True))
    return works


def adapter_bytes(model: Model, plan: Plan) -> int:
    """Of the slots for adapters on one rank, all layers of its stage: vLLM keeps `max_loras` of the largest rank."""
    if not plan.max_loras:
        return 0
    layers = math.ceil(model.layers / plan.pp)
    dense = model.experts is None
    elements = sum(
        plan.lora_rank * (slices * inputs + outputs) for inputs, outputs, slices in _widths(model, plan, dense=dense)
    )
    return 2 * layers * plan.max_loras * elements
