"""Decoders that tables only name: shapes and fields of each, from the configuration published with its weights.

That is ``config.json`` on the model's page; another source stands beside what it is of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from presim_study import dense_models


@dataclasses.dataclass(frozen=True)
class Shapes:
    """A decoder as Megatron's recipe takes it; ``fields`` are those of TransformerConfig."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocab: int
    style: str = "llama"  # llama: RMSNorm, SwiGLU, no biases; gpt: LayerNorm, GELU, biases; gpt-oss: its own
    tied: bool = False
    positions: str = "rope"
    fields: Mapping[str, object] = dataclasses.field(default_factory=dict)


def experts(count: int, top: int, ffn: int, **fields: object) -> dict[str, object]:
    """Fields of a Mixture of Experts as its published benchmarks run it: tokens spread evenly by force."""
    return {
        "num_moe_experts": count,
        "moe_router_topk": top,
        "moe_ffn_hidden_size": ffn,
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_load_balancing_type": "none",
        "moe_router_force_load_balancing": True,
        "moe_permute_fusion": True,
        **fields,
    }


LATENT = {  # DeepSeek's attention
    "multi_latent_attention": True,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "v_head_dim": 128,
    "qk_layernorm": True,
}
SIGMOID = {  # its router, and the shared expert that runs beside the exchange
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "moe_router_dtype": "fp32",
    "moe_shared_expert_overlap": True,
}
DROPPING = {"moe_expert_capacity_factor": 1.0, "moe_pad_expert_input_to_capacity": True}
_NORMALISED_HEADS = {"kv_channels": 128, "qk_layernorm": True}
_PLAIN = {"add_bias_linear": False, "hidden_dropout": 0.0, "attention_dropout": 0.0}
_OSS = {"kv_channels": 64, "window_size": (128, 0), "window_attn_skip_freq": 2}  # every second layer sees 128 tokens
_GLM = {"kv_channels": 128, "add_qkv_bias": True}


def _glm_experts(count: int, ffn: int, dense: int, layers: int) -> dict[str, object]:
    """GLM 4.5's: chosen as DeepSeek's, behind dense layers, one of them for all tokens."""
    frequency = [0] * dense + [1] * (layers - dense)
    return {**experts(count, 8, ffn, moe_shared_expert_intermediate_size=ffn, moe_layer_freq=frequency), **SIGMOID}


_GLM_AIR = Shapes(46, 4096, 10944, 96, 8, 151552, fields={**_GLM, **_glm_experts(128, 1408, 1, 46)})

PUBLISHED: Mapping[str, Shapes] = {
    "deepseekv3": Shapes(
        *(61, 7168, 18432, 128, 128, 129280),
        fields={
            **LATENT,
            **experts(256, 8, 2048, moe_shared_expert_intermediate_size=2048, moe_layer_freq=[0] * 3 + [1] * 58),
            **SIGMOID,
            "mtp_num_layers": 1,
        },
    ),
    "kimik2": Shapes(
        *(61, 7168, 18432, 64, 64, 163840),
        fields={
            **LATENT,
            **experts(384, 8, 2048, moe_shared_expert_intermediate_size=2048, moe_layer_freq=[0] + [1] * 60),
            **SIGMOID,
        },
    ),
    "qwen330ba3b": Shapes(
        48, 2048, 6144, 32, 4, 151936, fields={"kv_channels": 128, "qk_layernorm": True, **experts(128, 8, 768)}
    ),
    "qwen3235ba22b": Shapes(
        94, 4096, 12288, 64, 4, 151936, fields={"kv_channels": 128, "qk_layernorm": True, **experts(128, 8, 1536)}
    ),
    "gptoss120b": Shapes(36, 2880, 2880, 64, 8, 201088, "gpt-oss", fields={**_OSS, **experts(128, 4, 2880)}),
    "gptoss20b": Shapes(24, 2880, 2880, 64, 8, 201088, "gpt-oss", fields={**_OSS, **experts(32, 4, 2880)}),
    "deepseekv2lite": Shapes(
        *(27, 2048, 10944, 16, 16, 102400),
        fields={
            **LATENT,
            "q_lora_rank": None,
            **experts(64, 6, 1408, moe_shared_expert_intermediate_size=2816, moe_layer_freq=[0] + [1] * 26),
        },
    ),
    "deepseekv2": Shapes(
        *(60, 5120, 12288, 128, 128, 102400),
        fields={
            **LATENT,
            **experts(160, 6, 1536, moe_shared_expert_intermediate_size=3072, moe_layer_freq=[0] + [1] * 59),
        },
    ),
    "moonlight16b": Shapes(
        *(27, 2048, 11264, 16, 16, 163840),
        fields={
            **LATENT,
            "q_lora_rank": None,
            **experts(64, 6, 1408, moe_shared_expert_intermediate_size=2816, moe_layer_freq=[0] + [1] * 26),
            **SIGMOID,
        },
    ),
    "llama4scout": Shapes(
        *(48, 5120, 16384, 40, 8, 202048),
        fields=experts(16, 1, 8192, moe_shared_expert_intermediate_size=8192, moe_router_pre_softmax=True),
    ),
    # NVIDIA-NeMo's pretrain_grok1_314b.py: tokens beyond an expert's even share are dropped, its rows filled up to it
    "grok1": Shapes(64, 6144, 32768, 48, 8, 131072, fields=experts(8, 2, 32768, **DROPPING)),
    "llama4maverick": Shapes(
        *(48, 5120, 16384, 40, 8, 202048),
        fields=experts(
            128,
            1,
            8192,
            moe_shared_expert_intermediate_size=8192,
            moe_layer_freq=[0, 1] * 24,
            moe_router_pre_softmax=True,
        ),
    ),
    "glm45": Shapes(
        92, 5120, 12288, 96, 8, 151552, fields={**_GLM, "qk_layernorm": True, **_glm_experts(160, 1536, 3, 92)}
    ),
    "glm45air": _GLM_AIR,
    "glm45106b": _GLM_AIR,
    "olmoe": Shapes(16, 2048, 1024, 16, 16, 50304, fields={"qk_layernorm": True, **experts(64, 8, 1024)}),
    "qwen15moea27b": Shapes(
        *(24, 2048, 5632, 16, 16, 151936),
        fields={"add_qkv_bias": True, **experts(60, 4, 1408, moe_shared_expert_intermediate_size=5632)},
    ),
    "qwen257ba14b": Shapes(
        *(28, 3584, 18944, 28, 4, 151936),
        fields={"add_qkv_bias": True, **experts(64, 8, 2560, moe_shared_expert_intermediate_size=20480)},
    ),
    "dbrx": Shapes(40, 6144, 10752, 48, 8, 100352, fields={"normalization": "LayerNorm", **experts(16, 4, 10752)}),
    "mistralsmall24b": Shapes(40, 5120, 32768, 32, 8, 131072, fields={"kv_channels": 128}),
    "mistralnemo": Shapes(40, 5120, 14336, 32, 8, 131072, fields={"kv_channels": 128}),
    "phi4mini": Shapes(32, 3072, 8192, 24, 8, 200064, tied=True),
    "smollm17b": Shapes(24, 2048, 8192, 32, 32, 49152, tied=True),
    "smollm217b": Shapes(24, 2048, 8192, 32, 32, 49152, tied=True),
    **{name: Shapes(*sizes) for name, sizes in dense_models.LLAMAS.items()},
    **{name: Shapes(*sizes, fields={"add_qkv_bias": True}) for name, sizes in dense_models.QWENS.items()},
    **{name: Shapes(*sizes, fields=_NORMALISED_HEADS) for name, sizes in dense_models.QWEN3S.items()},
    **{name: Shapes(*sizes, fields=experts(8, 2, sizes[2])) for name, sizes in dense_models.MIXTRALS.items()},
    **{name: Shapes(*sizes, "gpt", fields=_PLAIN) for name, sizes in dense_models.NEMOTRONS.items()},
    **{name: Shapes(*sizes, "gpt", fields=_PLAIN) for name, sizes in dense_models.FALCONS.items()},
    **{name: Shapes(*sizes, "gpt", tied="15b" not in name) for name, sizes in dense_models.STARCODERS.items()},
    **{name: Shapes(*sizes, tied=True, fields={"kv_channels": 256}) for name, sizes in dense_models.GEMMAS.items()},
    **{
        name: Shapes(*sizes, "gpt", tied=True, positions="learned")
        for name, sizes in (*dense_models.GPT3S.items(), *dense_models.MEGATRONS.items())
    },
}
