"""Keys of TRL: fields of GRPOConfig and its ModelConfig, commit f2cd5771 (2026-07), with defaults that change time."""

from __future__ import annotations

from typing import Any

from presim.post_training.recipes.key_table import (
    Framework,
    Key,
    above,
    anything,
    inverted,
    is_positive,
    real,
    recomputation,
    truth,
    unlike,
    whole,
)


def _sleep_level(is_enabled: Any) -> int:
    """vllm_enable_sleep_mode sleeps at level 2 for the update (trl/generation/vllm_generation.py)."""
    return 2 if truth(is_enabled) else 0


TRL = Framework(
    "trl",
    {
        "model_name_or_path": Key("model", str),
        "num_generations": Key("samples", whole, 8),
        "per_device_train_batch_size": Key("device_batch", whole, 8),
        "gradient_accumulation_steps": Key("accumulation", whole, 1),
        "steps_per_generation": Key("generation_steps", whole),
        "generation_batch_size": Key("generated_responses", whole),
        "use_vllm": Key("uses_vllm", truth, False),
        "vllm_enable_sleep_mode": Key("sleep_level", _sleep_level, 0),
        "vllm_max_model_length": Key("longest_sequence", whole),
        "use_peft": Key("trains_adapters", truth),
        "lora_r": Key("adapter_rank", whole, 16),
        "num_iterations": Key("epochs", whole, 1),
        "max_prompt_length": Key("longest_prompt", whole),
        "max_completion_length": Key("longest_response", whole, 512),
        "beta": Key("reference", is_positive, False),
        "vllm_mode": Key("is_colocated", lambda mode: {"colocate": True, "server": False}[str(mode)]),
        "vllm_gpu_memory_utilization": Key("engine.gpu_memory_utilization", real, 0.3),
        "vllm_tensor_parallel_size": Key("engine.tp", whole, 1),
        "gradient_checkpointing": Key("recompute", recomputation, "full"),
    },
    (
        "learning_rate", "lr_*", "warmup_*", "weight_decay", "max_grad_norm", "logging_*", "save_*", "output_dir",
        "report_to", "run_name", "seed", "num_train_epochs", "max_steps", "temperature", "top_p", "top_k",
        "min_p", "epsilon*", "delta", "overwrite_output_dir", "log_level", "model_revision", "system_prompt",
        "trust_remote_code", "gradient_checkpointing_kwargs.*", "per_device_eval_batch_size", "chat_template*",
        "mask_truncated_completions", "wandb_*", "lora_alpha", "lora_target_modules", "lora_dropout", "callbacks",
        "benchmarks", "shuffle_dataset", "sapo_*", "vespo_*", "importance_sampling_level", "num_completions_to_print",
        "vllm_importance_sampling_*", "vllm_server_*", "disable_dropout", "data_seed", "ddp_timeout",
        "use_bias_correction_kl",
        "scale_rewards", "loss_type", "remove_unused_columns", "dataset_*", "eval_*",
        "push_to_hub", "vllm_device", "log_completions", "reward_*", "torch_dtype", "attn_implementation", "do_eval",
        "hub_*",
    ),
    {},
    always={"balance": False, "pads_to_longest": True},
    unsimulated={
        "bf16": inverted,
        "fp16": truth,
        "optim": unlike("adamw_torch", "adamw_torch_fused", "adamw_hf"),
        "use_liger_kernel": truth,
        "use_liger_loss": truth,
        "load_in_4bit": truth,
        "load_in_8bit": truth,
        "torch_compile": truth,
        "deepspeed": anything,
        "fsdp": anything,
        "sync_ref_model": truth,
        "entropy_coef": is_positive,
        "cast_lm_head_to_fp32": truth,
        "top_entropy_quantile": unlike("1", "1.0"),
        "max_tool_calling_iterations": above(0),
        "use_transformers_*": truth,
        "pad_to_multiple_of": above(1),
        "vllm_model_impl": unlike("vllm"),
        "ds3_gather_for_generation": inverted,
    },
)  # fmt: skip
