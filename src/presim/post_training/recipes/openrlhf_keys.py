"""Arguments of OpenRLHF: openrlhf/cli/train_ppo_ray.py of commit 3c3be623 (2026-08), and their former names.

https://github.com/OpenRLHF/OpenRLHF. Former names have underscores where present ones have sections (train.batch_size).
"""

from __future__ import annotations

from typing import Any

from presim.post_training.recipes.key_table import (
    Framework,
    Key,
    above,
    anything,
    choice,
    inverted,
    is_positive,
    real,
    recomputation,
    truth,
    unlike,
    whole,
)

_ESTIMATORS = {
    "gae": "ppo",
    "reinforce": "reinforce",
    "reinforce_baseline": "reinforce",
    "rloo": "rloo",
    "group_norm": "grpo",
    "dr_grpo": "grpo",
}


def _zero_stage(stage: Any) -> int:
    """DeepSpeed's stage of sharding: of nothing, the optimizer, gradients, or parameters."""
    return int(choice({word: int(word) for word in "0123"})(stage))


def _sleep_level(is_enabled: Any) -> int:
    """Level 1: weights wait on the host (openrlhf/trainer/ray/vllm_engine.py)."""
    return 1 if truth(is_enabled) else 0


# Present name, former name, and what both set.
_ARGUMENTS: tuple[tuple[str, str, Key], ...] = (
    ("actor.model_name_or_path", "pretrain", Key("model", str)),
    ("rollout.batch_size", "rollout_batch_size", Key("prompts", whole, 1024)),
    ("rollout.n_samples_per_prompt", "n_samples_per_prompt", Key("samples", whole, 1)),
    ("rollout.vllm_generate_batch_size", "vllm_generate_batch_size", Key("round_prompts", whole)),
    ("train.batch_size", "train_batch_size", Key("mini_batch_responses", whole, 128)),
    ("train.max_epochs", "max_epochs", Key("epochs", whole, 1)),
    ("data.max_len", "max_len", Key("longest_sequence", whole)),
    ("rollout.max_new_tokens", "generate_max_len", Key("longest_response", whole)),
    ("algo.advantage.estimator", "advantage_estimator", Key("algorithm", choice(_ESTIMATORS), "ppo")),
    ("algo.kl.init_coef", "init_kl_coef", Key("reference", is_positive, True)),
    ("algo.dynamic_filtering_enable", "dynamic_filtering", Key("filters", truth)),
    ("ds.zero_stage", "zero_stage", Key("zero_stage", _zero_stage, 2)),
    ("ds.tensor_parallel_size", "ds_tensor_parallel_size", Key("tp", whole, 1)),
    ("ds.ring_attn_size", "ring_attn_size", Key("cp", whole, 1)),
    ("ds.packing_samples", "packing_samples", Key("packs_samples", truth, False)),
    ("ds.adam_offload", "adam_offload", Key("updates_on_host", truth)),
    ("ds.enable_sleep", "deepspeed_enable_sleep", Key("trainer_sleeps", truth, False)),
    ("ds.lora.rank", "lora_rank", Key("lora_rank", whole)),
    ("ref.offload", "ref_reward_offload", Key("offloads_reference", truth)),
    ("actor.gradient_checkpointing_enable", "gradient_checkpointing", Key("recompute", recomputation, "none")),
    ("train.dynamic_batch_enable", "use_dynamic_batch", Key("packs_tokens", truth, False)),
    ("train.max_tokens_per_gpu", "train_max_tokens_per_gpu", Key("micro_tokens", whole, 16192)),
    ("rollout.max_tokens_per_gpu", "rollout_max_tokens_per_gpu", Key("logprob_tokens", whole)),
    ("train.micro_batch_size", "micro_train_batch_size", Key("micro_sequences", whole)),
    ("rollout.micro_batch_size", "micro_rollout_batch_size", Key("logprob_sequences", whole)),
    ("train.colocate_all", "colocate_all_models", Key("colocates_all", truth, False)),
    ("train.colocate_actor_ref", "colocate_actor_ref", Key("colocates_reference", truth, False)),
    ("train.colocate_critic_reward", "colocate_critic_reward", Key("colocates_critic", truth, False)),
    ("train.async_enable", "async_train", Key("is_asynchronous", truth, False)),
    ("train.async_queue_size", "async_queue_size", Key("staleness", real, 1.0)),
    ("train.partial_rollout_enable", "partial_rollout", Key("partial", truth)),
    ("train.agent_func_path", "agent_func_path", Key("agent", str)),
    ("reward.remote_url", "remote_rm_url", Key("reward_url", str)),
    ("reward.model_name_or_path", "reward_pretrain", Key("reward_path", str)),
    ("actor.num_nodes", "actor_num_nodes", Key("train_nodes", whole, 1)),
    ("actor.num_gpus_per_node", "actor_num_gpus_per_node", Key("train_gpus_per_node", whole, 8)),
    ("ref.num_nodes", "ref_num_nodes", Key("reference_nodes", whole, 1)),
    ("ref.num_gpus_per_node", "ref_num_gpus_per_node", Key("reference_gpus_per_node", whole, 8)),
    ("critic.num_nodes", "critic_num_nodes", Key("critic_nodes", whole, 1)),
    ("critic.num_gpus_per_node", "critic_num_gpus_per_node", Key("critic_gpus_per_node", whole, 8)),
    ("reward.num_nodes", "reward_num_nodes", Key("reward_nodes", whole, 1)),
    ("reward.num_gpus_per_node", "reward_num_gpus_per_node", Key("reward_gpus_per_node", whole, 8)),
    ("vllm.num_engines", "vllm_num_engines", Key("engine_count", whole, 0)),
    ("vllm.tensor_parallel_size", "vllm_tensor_parallel_size", Key("engine.tp", whole, 1)),
    (
        "vllm.gpu_memory_utilization",
        "vllm_gpu_memory_utilization",
        Key("engine.gpu_memory_utilization", real, 0.95),
    ),
    ("vllm.enable_prefix_caching", "enable_prefix_caching", Key("engine.prefix_caching", truth, False)),
    ("vllm.enforce_eager", "enforce_eager", Key("engine.cuda_graphs", inverted, True)),
    ("vllm.enable_sleep", "vllm_enable_sleep", Key("sleep_level", _sleep_level, 0)),
)
_FORMER = {former: Key(key.field, key.read) for _, former, key in _ARGUMENTS}
_NO_EFFECT = (
    "logger.*", "ckpt.*", "eval.*", "data.*", "critic.adam.*", "actor.adam.*", "*.lr_*", "*.min_lr_ratio", "*.max_norm",
    "*.muon.*", "actor.eps_clip*", "actor.dual_clip", "actor.entropy_coef", "actor.aux_loss_coef",
    "actor.policy_loss_type", "actor.gradient_checkpointing_reentrant", "critic.value_clip", "critic.freezing_steps",
    "critic.save_value_network", "algo.*", "rollout.top_p", "rollout.temperature", "rollout.tasks_per_gpu",
    "train.num_episodes", "train.seed", "train.ema_beta", "reward.*_enable", "reward.clip_range", "reward.overlong*",
    "reward.stop_properly*", "vllm.sync_*", "ds.attn_implementation", "ds.lora.*", "ds.param_dtype", "ds.overlap_comm",
    "ds.ring_attn_head_stride", "ds.value_head_prefix", "use_ms", "local_rank",
    # of Ray, and the former names
    "address", "runtime-env-json", "no-wait", "head", "num-gpus", "node-ip-address", "working-dir",
    "port", "block", "overlap", "nodes", "ntasks*", "container-*",
    "save_*", "ckpt_path", "load_checkpoint", "max_ckpt_*", "disable_ds_ckpt", "use_ds_universal_ckpt", "logging_steps",
    "eval_*", "prompt_*", "input_*", "label_key", "apply_chat_template", "max_samples", "num_episodes", "max_norm",
    "l2", "eps_clip*", "dual_clip", "value_clip", "lambd", "gamma", "normalize_reward", "top_p", "temperature", "seed",
    "freezing_actor_steps", "actor_learning_rate", "critic_learning_rate", "lr_*", "kl_*", "use_kl_*",
    "policy_loss_type", "aux_loss_coef", "entropy_loss_coef", "adam_betas", "reward_clip_range", "ptx_coef",
    "no_advantage_std_norm", "overlong_*", "stop_properly_*", "ring_head_stride", "value_head_prefix", "use_wandb",
    "wandb_*", "use_tensorboard", "dynamic_filtering_reward_range", "perf", "attn_implementation", "flash_attn", "bf16",
    "param_dtype", "lora_*", "target_modules", "vllm_sync_*", "*vllm_is_*", "actor_init_on_gpu", "overlap_comm",
    "disable_fast_tokenizer", "gradient_checkpointing_use_reentrant", "rollout_tasks_per_gpu", "ema_beta",
    "save_value_network", "use_icepop",
)  # fmt: skip

OPENRLHF = Framework(
    "openrlhf",
    {
        **{name: key for name, _, key in _ARGUMENTS},
        **_FORMER,
        "pretrain": Key("former_model", str),
        "prompt_max_len": Key("longest_prompt", whole),
    },
    _NO_EFFECT,
    {},
    always={"engine.kernels": "vllm", "runs_in_ray": True},
    unsimulated={
        "ds.zpg": above(1),
        "zpg": above(1),
        "ds.deepcompile": truth,
        "deepcompile": truth,
        "ds.use_liger_kernel": truth,
        "use_liger_kernel": truth,
        "ds.load_in_4bit": truth,
        "load_in_4bit": truth,
        "ds.grad_accum_dtype": unlike("bf16"),
        "grad_accum_dtype": unlike("bf16"),
        "ds.experts_implementation": anything,
        "train.enable_ema": truth,
        "enable_ema": truth,
        "train.full_determinism_enable": truth,
        "full_determinism": truth,
        "*.optim": unlike("adam"),
        "critic.model_name_or_path": anything,
        "critic_pretrain": anything,
        "reward.offload": truth,
        "data.max_images_per_prompt": above(0),
        "actor.freeze_visual_encoder": truth,
    },
    required=("rollout.*", "rollout_batch_size", "vllm.*", "vllm_num_engines"),
)
