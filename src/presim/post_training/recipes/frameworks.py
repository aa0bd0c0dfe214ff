"""Keys of verl, NeMo RL, TRL and slime, with the defaults that change time.

verl: verl/trainer/config of commit 1dda039b (2026-08). NeMo RL: examples/configs/grpo_math_1B.yaml of commit 7ea279ab
(2026-08). TRL: fields of GRPOConfig. slime: arguments of its launch scripts, which are Megatron's and its own.
"""

from __future__ import annotations

from typing import Any

from presim.post_training.recipes.key_table import (
    Framework,
    Key,
    choice,
    inverted,
    is_positive,
    largest,
    real,
    recomputation,
    truth,
    whole,
)

_STYLES = {"fsdp": "fsdp2", "fsdp2": "fsdp2", "megatron": "zero1"}
_ENGINES = {"dp": "fsdp2", "fsdp": "fsdp2", "fsdp2": "fsdp2", "megatron": "zero1"}
_ACTOR, _ROLLOUT, _REF = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.ref."


_ALIKE = ("gspo", "cispo", "grpo_vectorized", "grpo_passk", "gpg", "gdpo", "opo", "optimal_token_baseline")


def _algorithm(name: Any) -> str:
    """GRPO stands for estimators that differ from it in arithmetic over a batch alone."""
    algorithms = dict.fromkeys(_ALIKE, "grpo") | {
        "grpo": "grpo",
        "gae": "ppo",
        "rloo": "rloo",
        "reinforce_plus_plus": "reinforce",
        "reinforce_plus_plus_baseline": "reinforce",
        "rloo_vectorized": "rloo",
    }
    return algorithms[str(name)]


def _class_of_vllm(is_asynchronous: Any) -> str:
    return "async-llm" if truth(is_asynchronous) else "llm"


def _assignment(mode: Any) -> str:
    """verl's engines before agent loops got their parts of a batch that was repeated prompt by prompt (v0.5)."""
    return {"sync": "consecutive", "async": "balanced"}[str(mode)]


def _lora(rank: Any) -> str:
    return "" if whole(rank) == 0 else "training of adapters is not modelled; set it to 0 for a full update"


def _has_adapters(is_enabled: Any) -> str:
    return "training of adapters is not modelled; set it to false for a full update" if truth(is_enabled) else ""


_engine = choice({"vllm": "vllm", "sglang": "sglang"})


VERL = Framework(
    "verl",
    {
        "actor_rollout_ref.model.path": Key("model", str),
        "data.train_batch_size": Key("prompts", whole, 1024),
        f"{_ROLLOUT}n": Key("samples", whole, 1),
        "data.max_prompt_length": Key("longest_prompt", whole, 512),
        "data.max_response_length": Key("longest_response", whole, 512),
        "algorithm.adv_estimator": Key("algorithm", _algorithm),
        "algorithm.filter_groups.enable": Key("filters", truth),
        "data.gen_batch_size": Key("round_prompts", whole),
        f"{_ACTOR}ppo_mini_batch_size": Key("mini_batch", whole, 256),
        f"{_ACTOR}ppo_epochs": Key("epochs", whole, 1),
        f"{_ACTOR}strategy": Key("dp_style", choice(_STYLES), "fsdp2"),
        "model_engine": Key("dp_style", choice(_ENGINES)),
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
        f"{_ACTOR}megatron.override_transformer_config.apply_rope_fusion": Key("fuses_rotary", truth, False),
        f"{_ACTOR}megatron.override_transformer_config.bias_activation_fusion": Key("fuses_activation", truth, False),
        f"{_REF}fsdp_config.param_offload": Key("offloads_reference", truth),
        f"{_REF}megatron.param_offload": Key("offloads_reference", truth),
        f"{_ACTOR}use_kl_loss": Key("reference", truth, False),
        "algorithm.use_kl_in_reward": Key("reference_in_reward", truth),
        "actor_rollout_ref.model.enable_gradient_checkpointing": Key("recompute", recomputation, "full"),
        f"{_ROLLOUT}name": Key("engine.kernels", _engine),
        f"{_ROLLOUT}tensor_model_parallel_size": Key("engine.tp", whole, 2),
        f"{_ROLLOUT}gpu_memory_utilization": Key("engine.gpu_memory_utilization", real, 0.5),
        f"{_ROLLOUT}max_num_seqs": Key("engine.max_num_seqs", whole, 1024),
        f"{_ROLLOUT}max_num_batched_tokens": Key("engine.max_num_batched_tokens", whole, 8192),
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
        "*.optim.*", "*.clip_ratio*", "*.kl_loss_coef", "*.kl_loss_type", "*.loss_agg_mode", "*.grad_clip",
        "*.entropy_coeff", "*.temperature", "*.top_p", "*.top_k", "*.do_sample", "*.val_kwargs.*", "critic.*",
        "reward*",
        "algorithm.kl_ctrl.*", "algorithm.norm_adv*", "*.use_remove_padding",
        f"{_REF}log_prob_use_dynamic_bsz", f"{_REF}log_prob_micro_batch_size_per_gpu",
        f"{_REF}log_prob_max_token_len_per_gpu", f"{_REF}*ulysses_sequence_parallel_size",
        f"{_REF}fsdp_config.fsdp_size", f"{_REF}megatron.*_parallel_size",
        f"{_ROLLOUT}enable_chunked_prefill", f"{_ROLLOUT}free_cache_engine", f"{_ROLLOUT}prompt_length",
        f"{_ROLLOUT}response_length", f"{_ROLLOUT}max_model_len", f"{_ROLLOUT}load_format", "*.use_mbridge",
        f"{_REF}strategy", "*.lora_alpha", "rollout.total_rollout_steps",
        "*.masked_softmax_fusion", "*.persist_layer_norm", "*.bias_dropout_fusion", "frozen", "all-packages", "extra",
    ),
    {"actor_rollout_ref.model.lora_rank": _lora},
    always={"controller": "verl"},
)  # fmt: skip

_GENERATION, _MEGATRON = "policy.generation.", "policy.megatron_cfg."
NEMO_RL = Framework(
    "nemo-rl",
    {
        "policy.model_name": Key("model", str),
        "grpo.num_prompts_per_step": Key("prompts", whole, 32),
        "grpo.num_generations_per_prompt": Key("samples", whole, 16),
        "grpo.use_dynamic_sampling": Key("filters", truth),
        "grpo.batch_multiplier": Key("round_multiplier", real),
        "policy.train_global_batch_size": Key("mini_batch_responses", whole, 512),
        "policy.max_total_sequence_length": Key("longest_sequence", whole, 512),
        "policy.sequence_packing.train_mb_tokens": Key("micro_tokens", whole),
        "policy.sequence_packing.logprob_mb_tokens": Key("logprob_tokens", whole),
        "policy.sequence_packing.enabled": Key("packs", truth, True),
        "policy.dynamic_batching.enabled": Key("is_token_batch", truth, False),
        "policy.train_micro_batch_size": Key("micro_batch", whole, 4),
        "policy.logprob_batch_size": Key("logprob_batch", whole),
        "loss_fn.reference_policy_kl_penalty": Key("reference", is_positive, True),
        "loss_fn.force_on_policy_ratio": Key("old_logprobs", inverted),
        f"{_MEGATRON}enabled": Key("dp_style", lambda value: "zero1" if truth(value) else "fsdp2", "fsdp2"),
        f"{_MEGATRON}tensor_model_parallel_size": Key("tp", whole),
        f"{_MEGATRON}pipeline_model_parallel_size": Key("pp", whole),
        f"{_MEGATRON}context_parallel_size": Key("cp", whole, 1),
        f"{_MEGATRON}expert_model_parallel_size": Key("ep", whole),
        f"{_MEGATRON}apply_rope_fusion": Key("fuses_rotary", truth, True),
        f"{_MEGATRON}bias_activation_fusion": Key("fuses_activation", truth, True),
        f"{_MEGATRON}activation_checkpointing": Key("recompute", recomputation, "none"),
        "policy.dtensor_cfg.tensor_parallel_size": Key("dtensor.tp", whole, 1),
        "policy.dtensor_cfg.context_parallel_size": Key("dtensor.cp", whole, 1),
        "policy.dtensor_cfg.activation_checkpointing": Key("dtensor.recompute", recomputation, "none"),
        f"{_GENERATION}backend": Key("engine.kernels", _engine),
        f"{_GENERATION}vllm_cfg.tensor_parallel_size": Key("engine.tp", whole, 1),
        f"{_GENERATION}vllm_cfg.gpu_memory_utilization": Key("engine.gpu_memory_utilization", real, 0.6),
        f"{_GENERATION}vllm_cfg.enforce_eager": Key("engine.cuda_graphs", inverted),
        f"{_GENERATION}vllm_cfg.async_engine": Key("vllm_start", _class_of_vllm, "llm"),
        f"{_GENERATION}vllm_cfg.pipeline_parallel_size": Key("engine.pp", whole),
        f"{_GENERATION}vllm_cfg.expert_parallel_size": Key("rollout_ep", whole),
        f"{_GENERATION}vllm_kwargs.max_num_seqs": Key("engine.max_num_seqs", whole),
        f"{_GENERATION}vllm_kwargs.max_num_batched_tokens": Key("engine.max_num_batched_tokens", whole),
        f"{_GENERATION}vllm_kwargs.enable_prefix_caching": Key("engine.prefix_caching", truth),
        f"{_GENERATION}vllm_kwargs.compilation_config.cudagraph_capture_sizes": Key("engine.graph_tokens", largest),
        f"{_GENERATION}max_new_tokens": Key("longest_response", whole),
        f"{_GENERATION}colocated.enabled": Key("is_colocated", truth, True),
        f"{_GENERATION}colocated.resources.num_nodes": Key("rollout_nodes", whole),
        f"{_GENERATION}colocated.resources.gpus_per_node": Key("rollout_gpus_per_node", whole),
        "grpo.async_grpo.enabled": Key("is_asynchronous", truth, False),
        "grpo.async_grpo.max_trajectory_age_steps": Key("staleness", real),
        "grpo.async_grpo.in_flight_weight_updates": Key("partial", truth),
        "cluster.num_nodes": Key("nodes", whole, 1),
        "cluster.gpus_per_node": Key("gpus_per_node", whole, 1),
    },
    (
        "logger.*", "checkpointing.*", "data.*", "env.*", "grpo.val_*", "grpo.max_*", "grpo.seed", "grpo.normalize*",
        "grpo.use_leave_one_out*", "grpo.reward_*", "loss_fn.*", "*.optimizer*", "*.scheduler*", "policy.tokenizer.*",
        "policy.max_grad_norm", "policy.precision", "policy.make_sequence_length*", "*.env_vars*", "*.temperature",
        "*.sequence_parallel", "*.top_p", "*.top_k", "*.stop_*",
        "policy.dtensor_cfg.enabled", "reward_penalties.*", "cluster.segment_size", "*.empty_unused_memory_level",
        "*.vllm_cfg.max_model_len", "*.use_gloo_process_groups", "*.freeze_moe_router", "*.moe_router_*",
    ),
    {
        "policy.dtensor_cfg.lora_cfg.enabled": _has_adapters,
        f"{_MEGATRON}peft.enabled": _has_adapters,
        f"{_GENERATION}vllm_cfg.precision": lambda value: (
            "" if str(value) in ("bfloat16", "${policy.precision}") else "engines of another precision are not read "
            "yet; give --rollout-tp and other options instead of the recipe"
        ),
    },
    # Colocated engines have the GPU alone, as the file says beside a key; transfers go through packed buffers.
    # A micro-batch's tokens are those of all its context-parallel ranks. Engines of several GPUs run in Ray
    # (models/generation/vllm/vllm_worker.py). Engines of the class LLM get consecutive parts of a batch
    # (`shard_by_batch_size` in vllm_generation.py).
    always={
        "runs_in_ray": True, "offloads_all": True, "offloads_reference": True, "transfer": "packed",
        "packs_for_all_ranks": True, "splits_batches": True,
    },
)  # fmt: skip

TRL = Framework(
    "trl",
    {
        "model_name_or_path": Key("model", str),
        "num_generations": Key("samples", whole, 8),
        "per_device_train_batch_size": Key("device_batch", whole, 8),
        "gradient_accumulation_steps": Key("accumulation", whole, 1),
        "steps_per_generation": Key("generation_steps", whole),
        "num_iterations": Key("epochs", whole, 1),
        "max_prompt_length": Key("longest_prompt", whole),
        "max_completion_length": Key("longest_response", whole, 256),
        "beta": Key("reference", is_positive, False),
        "vllm_mode": Key("is_colocated", lambda mode: {"colocate": True, "server": False}[str(mode)]),
        "vllm_gpu_memory_utilization": Key("engine.gpu_memory_utilization", real, 0.3),
        "vllm_tensor_parallel_size": Key("engine.tp", whole, 1),
        "gradient_checkpointing": Key("recompute", recomputation, "full"),
    },
    (
        "learning_rate", "lr_*", "warmup_*", "weight_decay", "max_grad_norm", "logging_*", "save_*", "output_dir",
        "report_to", "run_name", "seed", "num_train_epochs", "max_steps", "bf16", "temperature", "top_p", "top_k",
        "min_p", "epsilon*", "scale_rewards", "loss_type", "remove_unused_columns", "dataset_*", "use_vllm", "eval_*",
        "push_to_hub", "vllm_device", "log_completions", "reward_*", "torch_dtype", "attn_implementation", "do_eval",
        "hub_*",
    ),
    {"use_peft": _has_adapters},
)  # fmt: skip

SLIME = Framework(
    "slime",
    {
        "hf-checkpoint": Key("model", str),
        "rollout-batch-size": Key("prompts", whole),
        "n-samples-per-prompt": Key("samples", whole, 1),
        "global-batch-size": Key("mini_batch_responses", whole),
        "num-steps-per-rollout": Key("updates", whole),
        "dynamic-sampling-filter-path": Key("filters", bool),
        "rollout-max-prompt-len": Key("longest_prompt", whole),
        "rollout-max-response-len": Key("longest_response", whole, 1024),
        "max-tokens-per-gpu": Key("micro_tokens", whole),
        "log-probs-max-tokens-per-gpu": Key("logprob_tokens", whole),
        "tensor-model-parallel-size": Key("tp", whole),
        "pipeline-model-parallel-size": Key("pp", whole),
        "context-parallel-size": Key("cp", whole, 1),
        "expert-model-parallel-size": Key("ep", whole),
        "recompute-granularity": Key("recompute", {"full": "full", "selective": "none"}.__getitem__, "none"),
        "advantage-estimator": Key("algorithm", _algorithm),
        "use-kl-loss": Key("reference", truth, False),
        "actor-num-nodes": Key("train_nodes", whole, 1),
        "actor-num-gpus-per-node": Key("train_gpus_per_node", whole, 8),
        "colocate": Key("is_colocated", truth, False),
        "offload": Key("offloads_all", truth, True),
        "rollout-num-gpus": Key("rollout_gpus", whole),
        "over-sampling-batch-size": Key("begun_prompts", whole),
        "sglang-max-running-requests": Key("engine.max_num_seqs", whole),
        "sglang-chunked-prefill-size": Key("engine.max_num_batched_tokens", whole),
        "sglang-disable-cuda-graph": Key("engine.cuda_graphs", inverted),
        "sglang-ep-size": Key("rollout_ep", whole),
        "sglang-dp-size": Key("attention_ranks", whole),
        "rollout-num-gpus-per-engine": Key("engine.tp", whole, 1),
        "sglang-mem-fraction-static": Key("engine.gpu_memory_utilization", real),
    },
    (
        "load", "save*", "ref-load", "prompt-data", "input-key", "label-key", "metadata-key", "apply-chat-template",
        "rollout-shuffle", "rm-type", "num-rollout", "rollout-temperature", "rollout-top*", "eval-*",
        "n-samples-per-eval*",
        "lr*", "optimizer", "weight-decay", "adam-*", "kl-loss-*", "kl-coef", "entropy-coef", "eps-*", "use-wandb",
        "wandb-*", "attention-dropout", "hidden-dropout", "sequence-parallel", "use-dynamic-batch-size", "balance-data",
        "accumulate-allreduce*", "attention-softmax*", "attention-backend", "recompute-method", "recompute-num-layers",
        "micro-batch-size", "qkv-format", "force", "head", "num-gpus", "disable-usage-stats", "dashboard-*", "address",
        "runtime-env-json", "sglang-cuda-graph-bs", "sglang-enable-dp-*", "tis-*", "use-tis", "rollout-function-path",
    ),
    {"lora-rank": _lora},
    always={"engine.kernels": "sglang"},
)  # fmt: skip
FRAMEWORKS = {framework.name: framework for framework in (VERL, NEMO_RL, TRL, SLIME)}
