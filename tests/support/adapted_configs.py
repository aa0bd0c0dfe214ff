"""Published configs of models that presim builds from the blocks of other families, with their cards' sizes.

Each is from the config.json of that name on huggingface.co; keys that change no layer are left out.
"""

from __future__ import annotations

from support.model_configs import Config

# Name: (config, parameters in 10^9 as published, KiB of keys and values that all layers keep of a token in 16 bits)
ADAPTED: dict[str, tuple[Config, float, float]] = {
    "inclusionAI/Ling-mini-2.0": (
        {
            "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe",
            "first_k_dense_replace": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 5120,
            "max_position_embeddings": 32768, "moe_intermediate_size": 512,
            "moe_shared_expert_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 256,
            "num_experts_per_tok": 8, "num_hidden_layers": 20, "num_key_value_heads": 4,
            "num_nextn_predict_layers": 0, "num_shared_experts": 1, "tie_word_embeddings": False,
            "use_bias": False, "use_qk_norm": True, "use_qkv_bias": False, "vocab_size": 157184,
        },
        16.26, 40,
    ),
    "deepseek-ai/deepseek-moe-16b-base": (
        {
            "architectures": ["DeepseekForCausalLM"], "model_type": "deepseek", "first_k_dense_replace":
            1, "hidden_size": 2048, "intermediate_size": 10944, "max_position_embeddings": 4096,
            "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 64,
            "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6,
            "num_hidden_layers": 28, "num_key_value_heads": 16, "tie_word_embeddings": False,
            "vocab_size": 102400,
        },
        16.38, 224,
    ),
    "LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct": (
        {
            "architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "head_dim": 128,
            "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
            "num_attention_heads": 32, "num_key_value_heads": 8, "num_layers": 32, "tie_word_embeddings":
            False, "vocab_size": 102400,
        },
        7.82, 128,
    ),
    "OrionStarAI/Orion-14B-Base": (
        {
            "architectures": ["OrionForCausalLM"], "model_type": "orion", "hidden_size": 5120,
            "intermediate_size": 15360, "max_position_embeddings": 4096, "max_sequence_length": 4096,
            "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 40,
            "tie_word_embeddings": False, "vocab_size": 84608,
        },
        14.5, 800,
    ),
    "Qwen/Qwen-7B": (
        {
            "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": 4096,
            "intermediate_size": 22016, "kv_channels": 128, "max_position_embeddings": 32768,
            "num_attention_heads": 32, "num_hidden_layers": 32, "seq_length": 8192, "tie_word_embeddings":
            False, "vocab_size": 151936,
        },
        7.72, 512,
    ),
    "zai-org/chatglm2-6b": (
        {
            "architectures": ["ChatGLMModel"], "model_type": "chatglm", "add_qkv_bias": True,
            "ffn_hidden_size": 13696, "hidden_size": 4096, "kv_channels": 128, "multi_query_attention":
            True, "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28,
            "padded_vocab_size": 65024, "seq_length": 32768, "tie_word_embeddings": False,
        },
        6.24, 28,
    ),
    "openbmb/MiniCPM4-8B": (
        {
            "architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "hidden_size": 4096,
            "intermediate_size": 16384, "max_position_embeddings": 32768, "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 2, "tie_word_embeddings": False, "vocab_size":
            73448,
        },
        8.19, 32,
    ),
    "OpenGVLab/InternVL2-26B": (
        {
            "architectures": ["InternVLChatModel"], "model_type": "internvl_chat", "downsample_ratio":
            0.5, "llm_config": {"architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2",
            "bias": False, "hidden_size": 6144, "intermediate_size": 16384, "max_position_embeddings":
            32768, "num_attention_heads": 48, "num_hidden_layers": 48, "num_key_value_heads": 8,
            "tie_word_embeddings": False, "vocab_size": 92553}, "vision_config": {"architectures":
            ["InternVisionModel"], "hidden_size": 3200, "image_size": 448, "intermediate_size": 12800,
            "model_type": "intern_vit_6b", "norm_type": "rms_norm", "num_attention_heads": 25,
            "num_channels": 3, "num_hidden_layers": 45, "patch_size": 14, "qk_normalization": True,
            "qkv_bias": False},
        },
        25.51, 192,
    ),
    "moonshotai/Kimi-VL-A3B-Instruct": (
        {
            "architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl", "text_config":
            {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
            "first_k_dense_replace": 1, "hidden_size": 2048, "intermediate_size": 11264, "kv_lora_rank":
            512, "max_position_embeddings": 131072, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
            "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 16,
            "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank":
            None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size":
            163840, "tie_word_embeddings": False}, "vision_config": {"model_type": "moonvit",
            "hidden_size": 1152, "init_pos_emb_height": 64, "init_pos_emb_width": 64, "intermediate_size":
            4304, "merge_kernel_size": [2, 2], "num_attention_heads": 16, "num_hidden_layers": 27,
            "patch_size": 14},
        },
        16.41, 30.375,
    ),
    "stepfun-ai/Step-3.5-Flash": (
        {
            "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 4096,
            "intermediate_size": 11264, "num_hidden_layers": 45, "num_attention_heads": 64,
            "num_attention_groups": 8, "head_dim": 128, "max_position_embeddings": 262144,
            "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim":
            1280, "moe_layers_enum": ",".join(map(str, range(3, 45))), "use_moe": True,
            "use_head_wise_attn_gate": True, "use_qk_norm": True, "sliding_window": 512,
            "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 96,
            "num_attention_groups": 8, "head_dim": 128}, "layer_types": ["full_attention",
            *["sliding_attention"] * 3] * 12, "num_nextn_predict_layers": 3, "vocab_size": 128896,
            "tie_word_embeddings": False,
        },
        196.81, 180,
    ),
}  # fmt: skip
