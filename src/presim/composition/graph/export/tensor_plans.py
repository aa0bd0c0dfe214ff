"""How tensor parallelism splits a model's modules: transformers' ``tp_plan``, and plans for models without one.

Styles are transformers'. ``conv1d_`` in front of one says that weights are stored by input, as GPT-2's are.
"""

from __future__ import annotations

from typing import Any

# As Megatron-LM splits GPT: attention by heads, the MLP by its hidden layer, embedding and output layer by vocabulary.
_GPT2 = {
    "transformer.wte": "embedding_rowwise",
    "transformer.h.*.attn.c_attn": "conv1d_colwise",
    "transformer.h.*.attn.c_proj": "conv1d_rowwise",
    "transformer.h.*.mlp.c_fc": "conv1d_colwise",
    "transformer.h.*.mlp.c_proj": "conv1d_rowwise",
    "lm_head": "colwise_rep",
}
# Attention by heads, the MLP by its hidden layer.
_ENCODER = {
    "*layers.*.q_proj": "colwise",
    "*layers.*.k_proj": "colwise",
    "*layers.*.v_proj": "colwise",
    "*layers.*.o_proj": "rowwise",
    "*layers.*.out_proj": "rowwise",
    "*layers.*.fc1": "colwise",
    "*layers.*.fc2": "rowwise",
}
_PLANS = {"gpt2": _GPT2, "vit": _ENCODER, "clip": _ENCODER}


def tensor_plan(model: Any) -> dict[str, str]:
    """Style by pattern of module names; empty if the model has no plan."""
    model_plan = dict(getattr(model, "tp_plan", None) or {})
    return model_plan or _PLANS.get(getattr(getattr(model, "config", None), "model_type", ""), {})
