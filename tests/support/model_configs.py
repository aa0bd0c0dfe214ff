"""Keys of published configs that shape layers, with the sizes that their cards state, for models of many kinds.

Each is from the config.json of that name on huggingface.co; keys that change no layer are left out.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def _mixed(pattern: str) -> list[str]:
    """Nemotron-H's letters as it publishes them."""
    return list(pattern)


NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"

# Name: (config, parameters in 10^9 as published, KiB of keys and values that all layers keep of a token in 16 bits)
PUBLISHED: dict[str, tuple[Config, float, float]] = {
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B": (
        {
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hidden_size": 2688,
            "hybrid_override_pattern": NANO, "num_hidden_layers": 52, "num_attention_heads": 32, "head_dim": 128,
            "num_key_value_heads": 2, "mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
            "conv_kernel": 4, "expand": 2, "intermediate_size": 1856, "n_routed_experts": 128, "n_shared_experts": 1,
            "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
            "vocab_size": 131072, "max_position_embeddings": 262144, "tie_word_embeddings": False,
        },
        31.6, 6,
    ),
    "ai21labs/AI21-Jamba-Mini-1.6": (
        {
            "architectures": ["JambaForCausalLM"], "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32,
            "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_offset": 4,
            "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2, "num_experts": 16,
            "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
            "vocab_size": 65536, "max_position_embeddings": 262144,
        },
        51.6, 16,
    ),
    "MiniMaxAI/MiniMax-M1-80k": (
        {
            "architectures": ["MiniMaxM1ForCausalLM"], "model_type": "minimax_m1", "hidden_size": 6144, "head_dim": 128,
            "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "intermediate_size": 9216, "num_local_experts": 32, "num_experts_per_tok": 2,
            "shared_intermediate_size": 0, "vocab_size": 200064, "max_position_embeddings": 10240000,
        },
        456, 40,
    ),
    "LiquidAI/LFM2-1.2B": (
        {
            "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16,
            "block_ff_dim": 12288, "block_auto_adjust_ff_dim": True, "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "num_attention_heads": 32,
            "num_key_value_heads": 8, "conv_L_cache": 3, "vocab_size": 65536, "max_position_embeddings": 128000,
        },
        1.17, 12,
    ),
    "meta-llama/Llama-4-Scout-17B-16E": (
        {
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
                "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
                "interleave_moe_layer_step": 1, "num_local_experts": 16, "num_experts_per_tok": 1,
                "attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 0] * 12, "vocab_size": 202048,
                "max_position_embeddings": 10485760,
            },
            "vision_config": {"hidden_size": 1408, "num_hidden_layers": 34},
        },
        109, 192,
    ),
    "meta-llama/Llama-4-Maverick-17B-128E": (
        {
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
                "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
                "interleave_moe_layer_step": 2, "num_local_experts": 128, "num_experts_per_tok": 1,
                "attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 0] * 12, "vocab_size": 202048,
                "max_position_embeddings": 1048576,
            },
        },
        400, 192,
    ),
    "openbmb/MiniCPM3-4B": (  # vLLM keeps keys and values of each head
        {
            "architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", "hidden_size": 2560,
            "intermediate_size": 6400, "num_hidden_layers": 62, "num_attention_heads": 40, "num_key_value_heads": 40,
            "q_lora_rank": 768, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
            "vocab_size": 73448, "max_position_embeddings": 32768, "tie_word_embeddings": True,
        },
        4.07, 930,
    ),
    "baidu/ERNIE-4.5-21B-A3B-PT": (
        {
            "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_size": 2560,
            "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4,
            "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1, "moe_layer_interval": 1, "vocab_size": 103424, "tie_word_embeddings": True,
            "max_position_embeddings": 131072,
        },
        21.8, 56,
    ),
    "google/gemma-3-27b-it": (
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62, "intermediate_size": 21504,
                "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
            },
            "vision_config": {
                "model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27,
                "intermediate_size": 4304, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
            },
        },
        27.4, 496,
    ),
    "allenai/Olmo-3-1125-32B": (
        {
            "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "hidden_size": 5120, "num_hidden_layers": 64,
            "intermediate_size": 27648, "num_attention_heads": 40, "num_key_value_heads": 8, "sliding_window": 4096,
            "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16, "vocab_size": 100278,
            "max_position_embeddings": 65536,
        },
        32.2, 256,
    ),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (
        {
            "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "hidden_size": 2304,
            "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
            "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "intermediate_size": 9216, "first_k_dense_replace": 1, "num_experts": 256,
            "num_experts_per_token": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024, "moe_layer_freq": 1,
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
                "kda_layers": [layer for layer in range(1, 27) if layer % 4], "short_conv_kernel_size": 4,
            },
            "vocab_size": 163840, "model_max_length": 1048576,
        },
        49.1, 7.875,
    ),
    "meituan-longcat/LongCat-Flash-Chat": (
        {
            "architectures": ["LongcatFlashForCausalLM"], "model_type": "longcat_flash", "hidden_size": 6144,
            "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "num_layers": 28, "num_attention_heads": 64,
            "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "n_routed_experts": 512, "zero_expert_num": 256, "zero_expert_type": "identity",
            "moe_topk": 12, "vocab_size": 131072, "max_position_embeddings": 131072,
        },
        562, 63,
    ),
    "databricks/dbrx-base": (
        {
            "architectures": ["DbrxForCausalLM"], "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
            "max_seq_len": 32768, "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "rope_theta": 500000},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        132, 160,
    ),
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": (
        {
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "spatial_merge_size": 2,
            "text_config": {
                "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
                "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
                "max_position_embeddings": 131072, "sliding_window": None,
            },
            "vision_config": {
                "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                "num_attention_heads": 16, "head_dim": 64, "image_size": 1540, "patch_size": 14,
            },
        },
        24.0, 160,
    ),
    "baidu/ERNIE-4.5-VL-28B-A3B-PT": (
        {
            "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "model_type": "ernie4_5_moe_vl",
            "hidden_size": 2560, "intermediate_size": 12288, "moe_intermediate_size": [1536, 512],
            "moe_num_experts": [64, 64], "moe_k": 6, "moe_num_shared_experts": 2, "moe_layer_start_index": 1,
            "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4, "vocab_size": 103424,
            "max_position_embeddings": 131072,
            "vision_config": {"depth": 32, "hidden_size": 1280, "num_heads": 16, "mlp_ratio": 4},
        },
        29.4, 56,
    ),
    "MiniMaxAI/MiniMax-M3": (
        {
            "architectures": ["MiniMaxM3ForCausalLM"], "model_type": "minimax_m3", "hidden_size": 6144,
            "dense_intermediate_size": 12288, "intermediate_size": 3072, "shared_intermediate_size": 3072,
            "num_hidden_layers": 60, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
            "num_local_experts": 128, "num_experts_per_tok": 4, "moe_layer_freq": [0, 0, 0] + [1] * 57,
            "sparse_attention_config": {
                "sparse_index_dim": 128, "sparse_num_index_heads": 4, "sparse_topk_blocks": 16,
                "sparse_block_size": 128, "sparse_attention_freq": [0, 0, 0] + [1] * 57,
            },
            "vocab_size": 200064, "max_position_embeddings": 1048576,
        },
        426.2, 134.25,
    ),
    "stepfun-ai/Step-3.7-Flash": (
        {
            "architectures": ["Step3p7FlashForCausalLM"], "model_type": "step3p7", "hidden_size": 4096,
            "intermediate_size": 11264, "num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 128, "sliding_window": 512, "first_k_dense_replace": 3, "num_experts": 288,
            "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"],
            "num_experts_per_tok": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280, "vocab_size": 128896,
            "max_position_embeddings": 65536,
        },
        196, 180,
    ),
    "internlm/internlm3-8b-instruct": (
        {
            "architectures": ["InternLM3ForCausalLM"], "model_type": "internlm3", "hidden_size": 4096,
            "intermediate_size": 10240, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 2,
            "head_dim": 128, "vocab_size": 128512, "max_position_embeddings": 32768, "bias": False, "qkv_bias": False,
        },
        8.8, 48,
    ),
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": (  # its part that reads and writes text
        {
            "architectures": ["Qwen3OmniMoeForConditionalGeneration"], "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "model_type": "qwen3_omni_moe_thinker",
                "text_config": {
                    "model_type": "qwen3_omni_moe_text", "hidden_size": 2048, "intermediate_size": 768,
                    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
                    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 152064,
                    "max_position_embeddings": 65536,
                },
            },
        },
        31.7, 96,
    ),
    "tencent/Hunyuan-A13B-Instruct": (
        {
            "architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe", "hidden_size": 4096,
            "num_hidden_layers": 32, "intermediate_size": 3072, "moe_intermediate_size": [3072] * 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "attention_head_dim": 128, "head_dim": 128,
            "num_experts": 64, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32, "use_mixed_mlp_moe": True,
            "use_qk_norm": True, "use_cla": False, "cla_share_factor": 2, "vocab_size": 128167,
            "tie_word_embeddings": True, "max_position_embeddings": 32768,
        },
        80.4, 128,
    ),
    "bigcode/starcoder2-15b": (
        {
            "architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "hidden_size": 6144,
            "num_hidden_layers": 40, "intermediate_size": 24576, "num_attention_heads": 48, "num_key_value_heads": 4,
            "sliding_window": 4096, "tie_word_embeddings": False, "vocab_size": 49152, "max_position_embeddings": 16384,
        },
        16.0, 80,
    ),
    "EleutherAI/pythia-12b": (
        {
            "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 5120,
            "num_hidden_layers": 36, "intermediate_size": 20480, "num_attention_heads": 40, "vocab_size": 50688,
            "max_position_embeddings": 2048, "tie_word_embeddings": False,
        },
        11.8, 720,
    ),
    "microsoft/phi-2": (
        {
            "architectures": ["PhiForCausalLM"], "model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32,
            "intermediate_size": 10240, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 51200,
            "max_position_embeddings": 2048,
        },
        2.78, 320,
    ),
    "nvidia/Minitron-8B-Base": (
        {
            "architectures": ["NemotronForCausalLM"], "model_type": "nemotron", "hidden_size": 4096,
            "num_hidden_layers": 32, "intermediate_size": 16384, "num_attention_heads": 48, "num_key_value_heads": 8,
            "head_dim": 128, "vocab_size": 256000, "max_position_embeddings": 4096,
        },
        8.27, 128,
    ),
    "tiiuae/Falcon-H1-7B-Base": (
        {
            "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_size": 3072,
            "num_hidden_layers": 44, "intermediate_size": 12288, "num_attention_heads": 12, "num_key_value_heads": 2,
            "head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_d_state": 256,
            "mamba_n_groups": 1, "mamba_d_conv": 4, "vocab_size": 130049, "max_position_embeddings": 262144,
            "tie_word_embeddings": False,
        },
        7.59, 44,
    ),
    "LGAI-EXAONE/K-EXAONE-236B-A23B": (
        {
            "architectures": ["ExaoneMoEForCausalLM"], "model_type": "exaone_moe", "hidden_size": 6144,
            "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 48,
            "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_experts": 128,
            "num_experts_per_tok": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "sliding_window": 128,
            "sliding_window_pattern": "LLLG", "is_moe_layer": [False, *[True] * 47], "n_group": 1, "topk_group": 1,
            "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 12,
            "vocab_size": 153600, "max_position_embeddings": 262144, "tie_word_embeddings": False,
        },
        236, 192,
    ),
    "swiss-ai/Apertus-70B-2509": (  # a feed-forward of two matrices
        {
            "architectures": ["ApertusForCausalLM"], "model_type": "apertus", "hidden_size": 8192,
            "intermediate_size": 43008, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
            "vocab_size": 131072, "hidden_act": "xielu", "qk_norm": True, "post_norm": False, "mlp_bias": False,
            "max_position_embeddings": 65536, "tie_word_embeddings": False,
        },
        70.6, 320,
    ),
}  # fmt: skip
