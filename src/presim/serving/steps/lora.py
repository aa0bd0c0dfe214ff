"""What LoRA adapters add: their products in each step, and the memory of those that are on the GPU.

As vLLM's Punica kernels compute them (vllm/lora/layers): for each linear layer one kernel that shrinks the input to the
rank, and one that expands it to the output, over all adapters of the batch at once. Adapters are of the attention's
projections and of dense feed-forwards; those of experts, of embeddings and of logits are not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.models.decoder_layers import Attention, Dense, Layer
from presim.serving.serving_plan import ServingPlan
from presim.trace.signatures import Gemm

_HALF = "bfloat16"


def _widths(layer: Layer, hidden: int, plan: ServingPlan) -> list[tuple[int, int, int]]:
    """(inputs, outputs, slices) of one rank's linear layers that adapters change."""
    widths = []
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            heads, kv_heads = mixer.heads // plan.tp, max(mixer.kv_heads // plan.tp, 1)
            outputs = heads * mixer.head_dim + kv_heads * (mixer.head_dim + mixer.value_dim)
            widths += [(hidden, outputs, 3), (heads * mixer.value_dim, hidden, 1)]
    for part in layer.feed_forwards:
        if isinstance(part, Dense) and not part.shared:
            local, up = max(part.width // plan.tp, 1), part.matrices - 1
            widths += [(hidden, up * local, up), (local, hidden, 1)]
    return widths


def adapted(layer: Layer, hidden: int, plan: ServingPlan) -> int:
    """Linear layers that adapters change in one layer of the model."""
    return len(_widths(layer, hidden, plan))


def products(layer: Layer, hidden: int, plan: ServingPlan, tokens: int) -> list[Gemm]:
    """Of one layer, for so many tokens that have adapters: spread evenly over as many adapters as a batch may hold."""
    adapters = max(min(plan.max_loras, tokens), 1)
    tokens_each = -(-tokens // adapters)
    works = []
    for inputs, outputs, slices in _widths(layer, hidden, plan):
        works.append(Gemm(tokens_each, slices * plan.lora_rank, inputs, adapters, _HALF, layout="NT"))
        works.append(Gemm(tokens_each, outputs, plan.lora_rank, adapters, _HALF, layout="NT", accumulate=True))
    return works


def adapter_bytes(layers: Sequence[tuple[Layer, int]], hidden: int, plan: ServingPlan) -> int:
    """Of the slots for adapters on one rank, all layers of its stage: vLLM keeps `max_loras` of the largest rank."""
    elements = sum(
        count * plan.lora_rank * (slices * inputs + outputs)
        for layer, count in layers
        for inputs, outputs, slices in _widths(layer, hidden, plan)
    )
    return 2 * plan.max_loras * elements
