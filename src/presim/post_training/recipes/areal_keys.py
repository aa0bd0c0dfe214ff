"""Keys of AReaL: areal/api/cli_args.py of commit 4aef98d8 (2026-05), with the defaults that change time."""

from __future__ import annotations

from typing import Any

from presim.errors import InputError
from presim.post_training.recipes.areal_facts import allocation
from presim.post_training.recipes.key_table import (
    Framework,
    Key,
    anything,
    estimator,
    inverted,
    is_positive,
    real,
    recomputation,
    truth,
    unlike,
    whole,
)

_ADAMW = ("adam", "adamw", "none")


def _is_shared(target: Any) -> bool:
    """Whether a role's engines are on the actor's GPUs."""
    return str(target) == "actor"


def _cpu_refusal(backend: Any) -> str:
    """Why a backend cannot be simulated."""
    try:
        allocation(backend)
    except InputError as error:
        return str(error)
    return ""


AREAL = Framework(
    "areal",
    {
        "actor.path": Key("model", str),
        "actor.backend": Key("actor_backend", allocation),
        "rollout.backend": Key("rollout_backend", allocation),
        "ref.backend": Key("reference_backend", allocation),
        "critic.path": Key("critic.model", str),
        "allocation_mode": Key("allocation_mode", str),
        "cluster.n_nodes": Key("cluster_nodes", whole, 1),
        "cluster.n_gpus_per_node": Key("cluster_gpus_per_node", whole, 8),
        "train_dataset.batch_size": Key("prompts", whole),
        "train_dataset.max_length": Key("longest_prompt", whole),
        "gconfig.n_samples": Key("samples", whole, 1),
        "gconfig.max_new_tokens": Key("longest_response", whole, 16384),
        "gconfig.max_tokens": Key("longest_sequence", whole, 32768),
        "rollout.max_head_offpolicyness": Key("staleness", real, 0.0),
        "rollout.scheduling_strategy.target": Key("is_colocated", _is_shared),
        "actor.ppo_n_minibatches": Key("updates", whole, 4),
        "actor.mb_spec.max_tokens_per_mb": Key("pack_tokens", whole),
        "ref.mb_spec.max_tokens_per_mb": Key("reference_pack_tokens", whole),
        "actor.gradient_checkpointing": Key("recompute", recomputation, "none"),
        "actor.kl_ctl": Key("penalises_divergence", is_positive, True),
        "actor.recompute_logprob": Key("recomputes_logprobs", truth, False),
        "actor.use_decoupled_loss": Key("has_decoupled_loss", truth, False),
        "actor.adv_estimator": Key("algorithm", estimator),
        "actor.use_lora": Key("trains_adapters", truth),
        "actor.lora_rank": Key("adapter_rank", whole, 32),
        "enable_offload": Key("offloads_all", truth),
        "sglang.mem_fraction_static": Key("sglang.gpu_memory_utilization", real, 0.9),
        "sglang.max_running_requests": Key("sglang.max_num_seqs", whole),
        "sglang.disable_cuda_graph": Key("sglang.cuda_graphs", inverted),
        "vllm.gpu_memory_utilization": Key("vllm.gpu_memory_utilization", real, 0.9),
        "vllm.max_num_seqs": Key("vllm.max_num_seqs", whole, 256),
        "vllm.enforce_eager": Key("vllm.cuda_graphs", inverted),
    },
    (
        "experiment_name", "trial_name", "*.experiment_name", "*.trial_name", "seed", "total_train_*", "tokenizer_path",
        "*.tokenizer_path", "*.fileroot", "cluster.*", "scheduler.*", "launcher.*", "saver.*", "recover.*",
        "evaluator.*",
        "checkpointer.*", "stats_logger.*", "perf_tracer.*", "valid_dataset.*", "train_dataset.*", "gconfig.*",
        "eval_gconfig.*", "*.scheduling_spec*", "*.scheduling_strategy.*", "*.init_from_scratch", "*.disable_dropout",
        "*.dtype", "*.optimizer", "*.optimizer.*", "*.mb_spec.*", "actor.eps_clip*", "actor.c_clip",
        "actor.temperature",
        "actor.reward_*", "actor.kl_estimator", "actor.adv_norm*", "actor.rejection_sampling*", "actor.max_new_tokens",
        "actor.discount", "actor.gae_lambda", "actor.mask_no_eos*", "actor.overlong_*", "actor.use_kl_*",
        "actor.behav_imp*", "actor.behave_imp*", "actor.prox_logp*", "actor.importance_sampling*", "actor.group_size",
        "actor.lora_alpha", "actor.target_modules*", "actor.peft_type", "actor.weight_update_mode", "actor.attn_impl",
        "actor.log_agent*", "actor.dynamic_sampling", "rollout.consumer_batch_size", "rollout.queue_size",
        "rollout.enable_rollout_tracing", "rollout.dump_to_file", "rollout.check_trajectory_format",
        "rollout.*timeout*",
        "rollout.request_retries", "rollout.setup_timeout", "rollout.schedule_policy", "rollout.agent.*", "ref.*",
        "rollout.use_lora", "sglang.*", "vllm.*", "actor.megatron.*", "actor.archon.*", "actor.fsdp.*", "econfig.*",
        "actor.use_sapo*", "actor.sapo_*", "actor.m2_threshold", "reward_fn*", "workflow*", "eval_workflow*",
        "agent_run_args*", "export_style", "async_training", "critic.*", "swanlab.*",
    ),
    {"actor.backend": _cpu_refusal, "rollout.backend": _cpu_refusal, "ref.backend": _cpu_refusal},
    unsimulated={
        "rollout.max_concurrent_rollouts": anything,
        "econfig.max_steps": anything,
        "dynamic_bs": truth,
        "actor.weight_update_mode": unlike("xccl"),
        "actor.optimizer.type": unlike(*_ADAMW),
        "actor.enable_tree_training": truth,
        "actor.pad_to_maximum": truth,
        "actor.grad_reduce_dtype": unlike("float32"),
        "actor.megatron.use_deterministic_algorithms": truth,
        "actor.megatron.recompute_granularity": unlike("full"),
        "actor.megatron.fp8*": anything,
        "actor.fp8*": anything,
        "actor.archon.*offload*": truth,
        "actor.fsdp.*offload*": truth,
        "teacher.*": anything,
        "sglang.disable_radix_cache": truth,
        "sglang.disable_overlap_schedule": truth,
        "sglang.enable_torch_compile": truth,
        "sglang.speculative*": anything,
        "sglang.quantization": anything,
        "sglang.kv_cache_dtype": unlike("auto"),
        "vllm.quantization": anything,
        "vllm.kv_cache_dtype": unlike("auto"),
    },
    required=("rollout.backend", "allocation_mode", "rollout.max_head_offpolicyness"),
)  # fmt: skip
