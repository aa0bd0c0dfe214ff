"""Megatron-Bridge's models by their Hugging Face configs, and a few that it has no bridge for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from megatron.bridge import AutoBridge
from megatron.bridge.models.gpt_provider import GPTModelProvider
from stage_layout import divided_layers, layout_of
from transformers import PretrainedConfig


def provider_of(config: PretrainedConfig) -> GPTModelProvider:
    """Megatron's description of a model."""
    if config.model_type in _WITHOUT_BRIDGE:
        return _WITHOUT_BRIDGE[config.model_type](config)
    provider = AutoBridge.from_hf_config(config).to_megatron_provider(load_weights=False)
    if getattr(provider, "mtp_num_layers", None) is None:  # Bridge 0.2 leaves out DeepSeek-V3's, later releases do not
        provider.mtp_num_layers = getattr(config, "num_nextn_predict_layers", 0) or None
    return provider


def balance_stages(model: GPTModelProvider) -> None:
    """Give stages whole layers where they do not divide, unless the user has said how.

    The embedding and the output layer count as layers if they then divide. Else the last chunk of layers has fewer than
    the others. Both are what Bridge's recipes do (Llama 3.1 405B, DeepSeek-V3).
    """
    chunks = model.pipeline_model_parallel_size * (model.virtual_pipeline_model_parallel_size or 1)
    is_set = (
        model.pipeline_model_parallel_layout
        or model.account_for_embedding_in_pipeline_split
        or model.account_for_loss_in_pipeline_split
        or model.num_layers_in_first_pipeline_stage
        or model.num_layers_in_last_pipeline_stage
    )
    mtp_layers = getattr(model, "mtp_num_layers", None) or 0
    if chunks == 1 or is_set or (model.num_layers % chunks == 0 and not mtp_layers):
        return
    if (model.num_layers + 2) % chunks == 0 and not mtp_layers:
        model.account_for_embedding_in_pipeline_split = model.account_for_loss_in_pipeline_split = True
        return
    counts = list(map(len, divided_layers(model.num_layers, chunks)))
    model.pipeline_model_parallel_layout = layout_of(counts, mtp_layers)


def keep_chunks(model: GPTModelProvider, chunks: Sequence[range], predicting: int) -> None:
    """Leave these layers of the model, as the chunks of its pipeline: what is said for each layer goes with it.

    ``predicting``: the chunk that predicts further tokens.
    """
    kept = [layer for chunk in chunks for layer in chunk]
    for name, value in vars(model).items():
        if isinstance(value, list | tuple) and len(value) == model.num_layers:
            setattr(model, name, [value[layer] for layer in kept])
    model.num_layers = len(kept)
    mtp_layers = getattr(model, "mtp_num_layers", None) or 0
    model.pipeline_model_parallel_layout = layout_of(list(map(len, chunks)), mtp_layers, predicting)


def _mixtral(config: PretrainedConfig) -> GPTModelProvider:
    return GPTModelProvider(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        moe_ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        kv_channels=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        seq_length=config.max_position_embeddings,
        normalization="RMSNorm",
        layernorm_epsilon=config.rms_norm_eps,
        activation_func=F.silu,
        gated_linear_unit=True,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=config.attention_dropout,
        position_embedding_type="rope",
        rotary_base=config.rope_theta,
        num_moe_experts=config.num_local_experts,
        moe_router_topk=config.num_experts_per_tok,
        moe_aux_loss_coeff=config.router_aux_loss_coef,
        moe_router_load_balancing_type="aux_loss",
        moe_token_dispatcher_type="alltoall",
        moe_grouped_gemm=True,
        share_embeddings_and_output_weights=config.tie_word_embeddings,
        vocab_size=config.vocab_size,
        bf16=True,
        params_dtype=torch.bfloat16,
    )


def _llama4(config: PretrainedConfig) -> GPTModelProvider:
    """The text part. Its chunks of attention and layers without positions are as the others."""
    text = config.get_text_config()
    kinds = [int(layer in text.moe_layers) for layer in range(text.num_hidden_layers)]
    return GPTModelProvider(
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        ffn_hidden_size=text.intermediate_size_mlp,
        moe_ffn_hidden_size=text.intermediate_size,
        moe_shared_expert_intermediate_size=text.intermediate_size,
        moe_layer_freq=1 if all(kinds) else kinds,
        num_attention_heads=text.num_attention_heads,
        num_query_groups=text.num_key_value_heads,
        kv_channels=text.head_dim,
        seq_length=text.max_position_embeddings,
        normalization="RMSNorm",
        layernorm_epsilon=text.rms_norm_eps,
        activation_func=F.silu,
        gated_linear_unit=True,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=text.attention_dropout,
        position_embedding_type="rope",
        rotary_base=config.rope_theta,
        num_moe_experts=text.num_local_experts,
        moe_router_topk=text.num_experts_per_tok,
        moe_router_score_function="sigmoid",
        moe_router_load_balancing_type="aux_loss",
        moe_aux_loss_coeff=text.router_aux_loss_coef,
        moe_router_dtype="fp32",
        moe_apply_probs_on_input=True,
        moe_shared_expert_overlap=True,
        moe_token_dispatcher_type="alltoall",
        moe_grouped_gemm=True,
        share_embeddings_and_output_weights=text.tie_word_embeddings,
        vocab_size=text.vocab_size,
        bf16=True,
        params_dtype=torch.bfloat16,
    )


def _gpt2(config: PretrainedConfig) -> GPTModelProvider:
    return GPTModelProvider(
        num_layers=config.n_layer,
        hidden_size=config.n_embd,
        ffn_hidden_size=config.n_inner or 4 * config.n_embd,
        num_attention_heads=config.n_head,
        seq_length=config.n_positions,
        layernorm_epsilon=config.layer_norm_epsilon,
        add_bias_linear=True,
        bias_activation_fusion=True,
        hidden_dropout=config.resid_pdrop,
        attention_dropout=config.attn_pdrop,
        position_embedding_type="learned_absolute",
        share_embeddings_and_output_weights=config.tie_word_embeddings,
        vocab_size=config.vocab_size,
        bf16=True,
        params_dtype=torch.bfloat16,
    )


_WITHOUT_BRIDGE: Mapping[str, Callable[[PretrainedConfig], GPTModelProvider]] = {
    "mixtral": _mixtral,
    "gpt2": _gpt2,
    "llama4": _llama4,
    "llama4_text": _llama4,
}
