"""Keys of verl: verl/trainer/config of commit 1dda039b (2026-08), with the defaults that change time."""

from __future__ import annotations

from typing import Any

from presim.post_training.recipes.key_table import (
    Framework,
    Key,
    above,
    anything,
    choice,
    engine_kernels,
    estimator,
    granularity,
    inverted,
    largest,
    real,
    recomputation,
    truth,
    unlike,
    whole,
)

_STYLES = {"fsdp": "fsdp2", "fsdp2": "fsdp2", "megatron": "zero1"}
_ENGINES = {"dp": "fsdp2", "fsdp": "fsdp2", "fsdp2": "fsdp2", "megatron": "zero1"}
_ACTOR, _ROLLOUT, _REF = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.ref."
_TRANSFORMER = f"{_ACTOR}megatron.override_transformer_config."
_OPTIMIZER = f"{_ACTOR}optim.override_optimizer_config."
_TRANSFERS = {"naive": "per-parameter"} | dict.fromkeys(
    ("nccl", "hccl", "nixl", "mooncake", "kimi_ckpt_engine"), "checkpoint-engine"
)
_ADAMW = ("adam", "adamw")


def _assignment(mode: Any) -> str:
    """verl's engines before agent loops got their parts of a batch that was repeated prompt by prompt (v0.5)."""
    return {"sync": "consecutive", "async": "balanced"}[str(mode)]


def _distillation(is_enabled: Any) -> str:
    return "a teacher's probabilities are not simulated; set it to false" if truth(is_enabled) else ""


def _config_refusal(name: Any) -> str:
    return "a teacher's probabilities are not simulated; name another recipe" if "distill" in str(name) else ""


def _names_megatron(name: Any) -> bool:
    """Whether a configuration, such as ppo_megatron_trainer, is of verl's Megatron workers."""
    return "megatron" in str(name)


def _sleep_level(is_freed: Any) -> int:
    """Whether the engine's memory is free while its GPUs train."""
    return 2 if truth(is_freed) else 0


def _is_replayed(mode: Any) -> bool:
    """R3 sends the routers' choices of the rollout to the update; R2 those of the old log-probabilities."""
    return str(mode).upper() == "R3"


VERL = Framework(
    "verl",
    {
        "actor_rollout_ref.model.path": Key("model", str),
        "data.train_batch_size": Key("prompts", whole, 1024),
        f"{_ROLLOUT}n": Key("samples", whole, 1),
        "data.max_prompt_length": Key("longest_prompt", whole, 512),
        "data.max_response_length": Key("longest_response", whole, 512),
        "algorithm.adv_estimator": Key("algorithm", estimator),
        "algorithm.filter_groups.enable": Key("filters", truth),
        "data.gen_batch_size": Key("round_prompts", whole),
        f"{_ACTOR}ppo_mini_batch_size": Key("mini_batch", whole, 256),
        f"{_ACTOR}ppo_epochs": Key("epochs", whole, 1),
        f"{_ACTOR}strategy": Key("dp_style", choice(_STYLES), "fsdp2"),
        "model_engine": Key("dp_style", choice(_ENGINES)),
        "actor_rollout_ref.model.use_remove_padding": Key("removes_padding", truth, True),
        f"{_ACTOR}use_remove_padding": Key("removes_padding", truth),
        f"{_ACTOR}megatron.use_remove_padding": Key("removes_padding", truth),
        "trainer.balance_batch": Key("balance", truth, True),
        "actor_rollout_ref.model.lora_rank": Key("lora_rank", whole),
        "actor_rollout_ref.model.lora.rank": Key("lora_rank", whole),
        "actor_rollout_ref.model.lora.merge": Key("merges_adapters", truth),
        f"{_ACTOR}fsdp_config.strategy": Key("dp_style", choice(_STYLES)),
        f"{_ACTOR}ppo_max_token_len_per_gpu": Key("micro_tokens", whole, 16384),
        f"{_ACTOR}use_dynamic_bsz": Key("is_dynamic", truth, False),
        f"{_ACTOR}ppo_micro_batch_size_per_gpu": Key("micro_sequences", whole),
        f"{_ROLLOUT}log_prob_use_dynamic_bsz": Key("is_logprob_dynamic", truth),
        f"{_ROLLOUT}log_prob_micro_batch_size_per_gpu": Key("logprob_sequences", whole),
        f"{_ROLLOUT}log_prob_max_token_len_per_gpu": Key("logprob_tokens", whole),
        f"{_ACTOR}ulysses_sequence_parallel_size": Key("cp", whole, 1),
        f"{_ACTOR}fsdp_config.ulysses_sequence_parallel_size": Key("cp", whole),
        f"{_ACTOR}fsdp_config.fsdp_size": Key("shard", lambda size: max(whole(size), 0)),
        f"{_ACTOR}fsdp_config.param_offload": Key("offloads_parameters", truth),
        f"{_ACTOR}fsdp_config.optimizer_offload": Key("offloads_optimizer", truth),
        f"{_ACTOR}megatron.param_offload": Key("offloads_parameters", truth),
        f"{_ACTOR}megatron.optimizer_offload": Key("offloads_optimizer", truth),
        f"{_ACTOR}megatron.tensor_model_parallel_size": Key("tp", whole),
        f"{_ACTOR}megatron.pipeline_model_parallel_size": Key("pp", whole),
        f"{_ACTOR}megatron.context_parallel_size": Key("cp", whole),
        f"{_ACTOR}megatron.expert_model_parallel_size": Key("ep", whole),
        f"{_ACTOR}megatron.virtual_pipeline_model_parallel_size": Key("virtual", whole),
        f"{_TRANSFORMER}recompute_granularity": Key("megatron_recompute", granularity, "none"),
        f"{_TRANSFORMER}moe_enable_deepep": Key("uses_deepep", truth),
        f"{_ACTOR}router_replay.mode": Key("routing_replay", _is_replayed),
        f"{_ROLLOUT}enable_rollout_routing_replay": Key("routing_replay", truth),
        f"{_OPTIMIZER}optimizer_cpu_offload": Key("updates_on_host", truth),
        f"{_ACTOR}fsdp_config.reshard_after_forward": Key("reshard", truth),
        "algorithm.rollout_correction.bypass_mode": Key("old_logprobs", inverted),
        "critic.model.path": Key("critic.model", str),
        "critic.ulysses_sequence_parallel_size": Key("critic.cp", whole),
        "critic.megatron.tensor_model_parallel_size": Key("critic.tp", whole),
        "critic.megatron.pipeline_model_parallel_size": Key("critic.pp", whole),
        "critic.ppo_max_token_len_per_gpu": Key("critic.micro_tokens", whole),
        f"{_REF}ulysses_sequence_parallel_size": Key("reference.cp", whole),
        f"{_REF}fsdp_config.ulysses_sequence_parallel_size": Key("reference.cp", whole),
        f"{_REF}megatron.tensor_model_parallel_size": Key("reference.tp", whole),
        f"{_REF}megatron.pipeline_model_parallel_size": Key("reference.pp", whole),
        f"{_REF}megatron.context_parallel_size": Key("reference.cp", whole),
        f"{_REF}megatron.expert_model_parallel_size": Key("reference.ep", whole),
        f"{_REF}log_prob_max_token_len_per_gpu": Key("reference.logprob_tokens", whole),
        f"{_REF}log_prob_micro_batch_size_per_gpu": Key("reference.logprob_sequences", whole),
        f"{_ACTOR}megatron.override_transformer_config.apply_rope_fusion": Key("fuses_rotary", truth, False),
        f"{_ACTOR}megatron.override_transformer_config.bias_activation_fusion": Key("fuses_activation", truth, False),
        f"{_REF}fsdp_config.param_offload": Key("offloads_reference", truth),
        f"{_REF}megatron.param_offload": Key("offloads_reference", truth),
        f"{_ACTOR}use_kl_loss": Key("reference", truth, False),
        "algorithm.use_kl_in_reward": Key("reference_in_reward", truth),
        "actor_rollout_ref.model.enable_gradient_checkpointing": Key("recompute", recomputation, "full"),
        f"{_ROLLOUT}name": Key("engine.kernels", engine_kernels),
        f"{_ROLLOUT}tensor_model_parallel_size": Key("engine.tp", whole, 2),
        f"{_ROLLOUT}gpu_memory_utilization": Key("engine.gpu_memory_utilization", real, 0.5),
        f"{_ROLLOUT}max_num_seqs": Key("engine.max_num_seqs", whole, 1024),
        f"{_ROLLOUT}max_num_batched_tokens": Key("engine.max_num_batched_tokens", whole, 8192),
        f"{_ROLLOUT}data_parallel_size": Key("engine.dp", whole),
        f"{_ROLLOUT}quantization": Key("engine.weights", choice({"fp8": "fp8-block"})),
        f"{_ROLLOUT}checkpoint_engine.backend": Key("transfer", choice(_TRANSFERS)),
        f"{_ROLLOUT}free_cache_engine": Key("sleep_level", _sleep_level, 2),
        f"{_ROLLOUT}engine_kwargs.vllm.kv_cache_dtype": Key("engine.cache", choice({"auto": "bf16", "fp8": "fp8"})),
        f"{_ROLLOUT}engine_kwargs.vllm.compilation_config.cudagraph_capture_sizes": Key("engine.graph_tokens", largest),
        f"{_ROLLOUT}enforce_eager": Key("engine.cuda_graphs", inverted),
        f"{_ROLLOUT}over_sample_rate": Key("cut_tail", real),
        f"{_ROLLOUT}cudagraph_capture_sizes": Key("engine.graph_tokens", largest),
        f"{_ROLLOUT}pipeline_model_parallel_size": Key("engine.pp", whole),
        f"{_ROLLOUT}expert_parallel_size": Key("rollout_ep", whole),
        f"{_ROLLOUT}engine_kwargs.sglang.max_running_requests": Key("engine.max_num_seqs", whole),
        f"{_ROLLOUT}engine_kwargs.sglang.chunked_prefill_size": Key("engine.max_num_batched_tokens", whole),
        f"{_ROLLOUT}enable_prefix_caching": Key("engine.prefix_caching", truth),
        f"{_ROLLOUT}mode": Key("assignment", _assignment),
        "actor_rollout_ref.hybrid_engine": Key("is_colocated", truth, True),
        "trainer.nnodes": Key("train_nodes", whole, 1),
        "trainer.n_gpus_per_node": Key("train_gpus_per_node", whole, 8),
        "rollout.nnodes": Key("rollout_nodes", whole),
        "rollout.n_gpus_per_node": Key("rollout_gpus_per_node", whole),
        f"{_ROLLOUT}multi_turn.enable": Key("has_turns", truth),
        "async_training.staleness_threshold": Key("staleness", real),
        "async_training.partial_rollout": Key("partial", truth),
        "async_training.require_batches": Key("required_updates", whole, 1),
        "async_training.trigger_parameter_sync_step": Key("sync_steps", whole, 4),
    },
    (
        "data.train_files", "data.val_files", "data.prompt_key", "data.truncation", "data.filter_overlong*",
        "data.shuffle", "data.seed", "data.image_key", "data.return_raw_chat", "trainer.*_name", "trainer.logger",
        "trainer.save_freq", "trainer.test_freq", "trainer.total_*", "trainer.val_*", "trainer.log_val*",
        "trainer.default_local_dir", "trainer.resume_mode", "trainer.critic_warmup", "trainer.balance_batch",
        "*.optim.lr*", "*.optim.*lr*", "*.optim.weight_decay*", "*.optim.betas",
        "*.optim.clip_grad", "*.optim.warmup*", "*.optim.eps", "*.optim.total_training_steps",
        "*.clip_ratio*", "*.kl_loss_coef", "*.kl_loss_type", "*.loss_agg_mode", "*.grad_clip",
        "*.entropy_coeff", "*.temperature", "*.top_p", "*.top_k", "*.do_sample", "*.val_kwargs.*",
        "critic.enable", "critic.strategy", "critic.model.tokenizer_path", "critic.use_dynamic_bsz",
        "critic.model.use_remove_padding", "critic.model.enable_gradient_checkpointing", "critic.warmup*",
        "reward.custom_reward_function.*", "reward.reward_kwargs.*", "reward.reward_manager*", "reward.num_workers",
        "reward_model.reward_kwargs.*", "reward_model.reward_manager*", "custom_reward_function.*",
        "algorithm.kl_ctrl.*", "algorithm.norm_adv*", "algorithm.gamma", "algorithm.lam",
        f"{_REF}log_prob_use_dynamic_bsz", f"{_REF}use_torch_compile", f"{_REF}entropy_from_logits_with_chunking",
        f"{_REF}megatron.*dist_checkpointing*", f"{_ACTOR}megatron.*dist_checkpointing*",
        f"{_ACTOR}megatron.grad_offload",
        f"{_REF}megatron.expert_tensor_parallel_size", f"{_ROLLOUT}enable_chunked_prefill", f"{_ROLLOUT}prompt_length",
        f"{_ROLLOUT}calculate_log_probs", f"{_ROLLOUT}ignore_eos", f"{_ROLLOUT}layered_summon",
        "*.trust_remote_code", "*.nccl_timeout", "global_profiler.*", "*.profiler.*", "*.policy_loss.*",
        "distillation.*", "config-path", f"{_ROLLOUT}multi_turn.*", f"{_ROLLOUT}agent.*",
        "trainer.resume_from_path", "trainer.device",
        f"{_TRANSFORMER}recompute_num_layers", f"{_TRANSFORMER}moe_*_loss_coeff", f"{_TRANSFORMER}moe_router_*",
        f"{_TRANSFORMER}moe_grouped_gemm", f"{_TRANSFORMER}use_flash_attn", f"{_TRANSFORMER}attention_backend",
        "*.vanilla_mbridge", "*.lora.alpha", "*.lora_alpha", "*.target_modules", "*.lora.target_modules",
        "*.lora.dropout",
        "algorithm.rollout_correction.*", "hydra.*", "*.mm_processor_cache_gb", "data.messages_key",
        f"{_ROLLOUT}response_length", f"{_ROLLOUT}max_model_len", f"{_ROLLOUT}load_format", "*.use_mbridge",
        f"{_REF}strategy", "*.lora_alpha", "rollout.total_rollout_steps",
        "*.masked_softmax_fusion", "*.persist_layer_norm", "*.bias_dropout_fusion", "frozen", "all-packages", "extra",
    ),
    {"distillation.enabled": _distillation, "config-name": _config_refusal},
    always={"controller": "verl"},
    implied={  # verl's configuration of FSDP has no keys of Megatron
        "config-name": (_names_megatron, "dp_style", "zero1"),
        f"{_ACTOR}megatron.*": (anything, "dp_style", "zero1"),
    },
    unsimulated={
        f"{_OPTIMIZER}use_precision_aware_optimizer": truth,
        f"{_OPTIMIZER}*offload_fraction": unlike("1", "1.0"),
        f"{_OPTIMIZER}overlap_cpu_optimizer_d2h_h2d": inverted,
        f"{_ACTOR}optim.optimizer": unlike(*_ADAMW),
        f"{_ACTOR}optim.optimizer_impl": unlike("torch.optim"),
        f"{_OPTIMIZER}*": anything,
        f"{_ACTOR}fsdp_config.offload_policy": truth,
        f"{_ACTOR}fsdp_config.model_dtype": unlike("fp32", "float32"),
        f"{_ACTOR}*entropy_from_logits_with_chunking": truth,
        f"{_ACTOR}*entropy_checkpointing": truth,
        f"{_ACTOR}use_torch_compile": inverted,
        f"{_ACTOR}fsdp_config.use_torch_compile": inverted,
        f"{_TRANSFORMER}recompute_method": unlike("uniform"),
        f"{_TRANSFORMER}recompute_modules": anything,
        f"{_TRANSFORMER}num_layers_in_*_pipeline_stage": above(0),
        f"{_TRANSFORMER}account_for_*": truth,
        f"{_TRANSFORMER}pipeline_model_parallel_layout": anything,
        f"{_TRANSFORMER}moe_token_dispatcher_type": unlike("alltoall"),
        f"{_TRANSFORMER}moe_permute_fusion": inverted,
        f"{_TRANSFORMER}fp8": anything,
        f"{_ACTOR}megatron.expert_tensor_parallel_size": above(1),
        "*.use_fused_kernels": truth,
        "*.mtp.enable*": truth,
        "critic.*_offload": truth,
        "critic.optim.*optimizer*": anything,
        "critic.*": anything,
        "reward.reward_model.*": anything,
        "reward_model.*": anything,
        f"{_ROLLOUT}dtype": unlike("bfloat16"),
        f"{_ROLLOUT}checkpoint_engine.*": anything,
        f"{_ROLLOUT}engine_kwargs.vllm.speculative*": anything,
        f"{_ROLLOUT}engine_kwargs.sglang.speculative*": anything,
        f"{_ROLLOUT}engine_kwargs.vllm.compilation_config.cudagraph_mode": anything,
    },
    required=(f"{_ACTOR}*", "algorithm.adv_estimator", "data.train_batch_size"),
)  # fmt: skip
