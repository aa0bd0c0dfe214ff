"""What vLLM's profiling run takes for an encoder of images, before it sizes the KV cache.

vLLM 0.33 (v1/worker/gpu_model_runner.py, `profile_run`; multimodal/encoder_budget.py) encodes as many items of the
largest size as its budget holds, keeps their outputs, and then runs the decoder. The budget: `max_num_batched_tokens`,
or the tokens of one item if it has more. Encoders of Qwen2-VL to Qwen3.6 are known by the names of their weights.
"""

from __future__ import annotations

import re

from presim.composition.models.decoder_layers import Weight
from presim.composition.models.description import Model
from presim.serving.serving_plan import ServingPlan

# Tokens of their largest image: `max_pixels` 12,845,056 with 28 x 28 pixels a token (preprocessor_config.json of
# Qwen2-VL and Qwen2.5-VL), `longest_edge` 16,777,216 with 32 x 32 (Qwen3-VL, Qwen3.5). vLLM logs for all: "Encoder
# cache will be initialized with a budget of 16384 tokens, and profiled with 1 image items of the maximum feature size".
_ITEM_TOKENS = 16_384
_PIXEL_BYTES = 2  # of an input: processors' results are cast to the model's type (multimodal/processing/context.py)
_FIRST_BLOCK = re.compile(r"visual\.blocks\.0\.mlp\.(linear_fc1|fc1|gate_proj|up_proj|gate_up_proj)\.weight$")


def has_profile(model: Model) -> bool:
    """Whether the model has an encoder, and its part of the profiling run is known here."""
    return _merger(model) is not None and bool(_widening(model))


def peak_bytes(model: Model, plan: ServingPlan) -> tuple[int, int]:
    """Bytes at the peak of the encoder, and of its outputs that stay while the decoder is profiled; 0 without one."""
    merger, widening = _merger(model), _widening(model)
    if merger is None or not widening:
        return 0, 0
    items = max(plan.max_num_batched_tokens // _ITEM_TOKENS, 1)
    hidden = widening[0].shape[-1]
    patches = items * _ITEM_TOKENS * merger.shape[-1] // hidden
    width = sum(weight.shape[0] for weight in widening)
    activated = width // len(widening)
    # a block's input and its norm stay beside its widest part: the feed-forward, or queries, keys and values (3), their
    # copies for the rotary embedding (4) and the context (1)
    widest = max((width + activated) / plan.tp, 8 * hidden / plan.tp)
    of_block = 2 * patches * (2 * hidden + widest)
    pixels = next((weight.elements // weight.shape[0] for weight in model.outside if _is_patch_embedding(weight)), 0)
    levels = 1 + sum("deepstack" in weight.name and _is_output(weight) for weight in model.outside)
    outputs = 2 * items * _ITEM_TOKENS * model.hidden * levels
    return int(of_block + patches * pixels * _PIXEL_BYTES + outputs), outputs


def _widening(model: Model) -> list[Weight]:
    """The products that widen a token in the encoder's first block: one, or two with a gate."""
    return [weight for weight in model.outside if _FIRST_BLOCK.search(weight.name)]


def _merger(model: Model) -> Weight | None:
    """The product that makes a token of patches."""
    return next((weight for weight in model.outside if _is_output(weight) and "deepstack" not in weight.name), None)


def _is_output(weight: Weight) -> bool:
    return bool(re.search(r"visual\.(merger|deepstack_merger_list\.\d+)\.(linear_fc2|mlp\.2)\.weight$", weight.name))


def _is_patch_embedding(weight: Weight) -> bool:
    return weight.name.endswith("visual.patch_embed.proj.weight")
