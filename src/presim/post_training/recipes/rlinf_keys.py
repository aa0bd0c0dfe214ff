"""Keys of RLinf's reasoning jobs: rlinf/config.py of 2026-08, with the defaults that change time."""

from __future__ import annotations

from typing import Any

from presim.post_training.recipes.key_table import (
    Framework,
    Key,
    anything,
    choice,
    engine_kernels,
    estimator,
    granularity,
    inverted,
    is_positive,
    real,
    truth,
    unlike,
    whole,
)

_MODEL = "actor.model."
_TASKS = ("reasoning", "coding_online_rl")
_ADAMW = ("adam", "adamw")


def _task_refusal(task: Any) -> str:
    """Robots and worlds are no token generation of an engine."""
    return "" if str(task) in _TASKS else f"presim rl takes RLinf's {' and '.join(_TASKS)}; name another recipe"


def _advantage(kind: Any) -> str:
    """RLinf's names beside those of all; raw rewards differ in arithmetic alone."""
    return {"reinpp": "reinforce", "raw": "reinforce"}.get(str(kind)) or str(estimator(kind))


def _sharding_refusal(sharding: Any) -> str:
    return "" if str(sharding) in ("full_shard", "no_shard") else "only full_shard and no_shard are simulated"


RLINF = Framework(
    "rlinf",
    {
        "rollout.model.model_path": Key("model", str),
        "cluster.num_nodes": Key("nodes", whole, 1),
        "cluster.num_gpus_per_node": Key("gpus_per_node", whole, 8),
        "data.rollout_batch_size": Key("prompts", whole),
        "data.max_prompt_length": Key("longest_prompt", whole),
        "runner.seq_length": Key("longest_sequence", whole),
        "runner.enable_dynamic_batch_size": Key("packs_tokens", truth, False),
        "runner.max_tokens_per_mbs": Key("micro_tokens", whole),
        "algorithm.group_size": Key("samples", whole, 1),
        "algorithm.n_minibatches": Key("updates", whole, 1),
        "algorithm.training_batch_size_per_gpu": Key("micro_sequences", whole, 1),
        "algorithm.logprob_forward_micro_batch_size": Key("logprob_sequences", whole),
        "algorithm.recompute_logprobs": Key("old_logprobs", truth, True),
        "algorithm.kl_beta": Key("reference", is_positive, False),
        "algorithm.adv_type": Key("algorithm", _advantage),
        "algorithm.staleness_threshold": Key("staleness", real),
        "rollout.rollout_backend": Key("engine.kernels", engine_kernels, "sglang"),
        "rollout.gpu_memory_utilization": Key("engine.gpu_memory_utilization", real, 0.55),
        "rollout.tensor_parallel_size": Key("engine.tp", whole, 1),
        "rollout.pipeline_parallel_size": Key("engine.pp", whole, 1),
        "rollout.max_running_requests": Key("engine.max_num_seqs", whole),
        "rollout.enforce_eager": Key("engine.cuda_graphs", inverted),
        "rollout.cuda_graph_max_bs": Key("engine.graph_tokens", whole),
        "actor.training_backend": Key("dp_style", choice({"megatron": "zero1", "fsdp": "fsdp2"}), "zero1"),
        "actor.fsdp_config.gradient_checkpointing": Key("checkpoints", truth),
        f"{_MODEL}tensor_model_parallel_size": Key("tp", whole),
        f"{_MODEL}pipeline_model_parallel_size": Key("pp", whole),
        f"{_MODEL}context_parallel_size": Key("cp", whole, 1),
        f"{_MODEL}expert_model_parallel_size": Key("ep", whole),
        f"{_MODEL}recompute_granularity": Key("recompute", granularity, "none"),
        "actor.enable_dp_load_balance": Key("balance", truth, False),
        "actor.offload_optimizer": Key("offloads_optimizer", truth),
        "actor.offload_weight": Key("offloads_parameters", truth),
        "actor.enable_offload": Key("offloads_all", truth),
    },
    (
        "hydra.*", "cluster.*", "runner.*", "algorithm.*", "data.*", "reward.*", "critic.*", "actor.group_name",
        "actor.mcore_gpt", "actor.spec_name", "actor.seed", "actor.calculate_flops", "actor.offload_grad",
        "actor.optim.*",
        "actor.lr_sched.*", "actor.tokenizer.*", "actor.megatron.*", "actor.fsdp_config.*", f"{_MODEL}*",
        "rollout.group_name", "rollout.model.*", "rollout.distributed_executor_backend", "rollout.disable_log_stats",
        "rollout.detokenize", "rollout.padding", "rollout.eos", "rollout.sglang.*", "rollout.vllm.*",
        "rollout.return_logprobs", "rollout.validate_*", "rollout.print_outputs", "rollout.profile*", "inference.*",
        "env.*", "actor.checkpoint*", "actor.model_parallel*", "actor.micro_batch_size", "actor.global_batch_size",
    ),
    {"runner.task_type": _task_refusal, "actor.fsdp_config.sharding_strategy": _sharding_refusal},
    unsimulated={
        "algorithm.rollout_batch_size_per_gpu": anything,
        f"{_MODEL}recompute_method": unlike("uniform"),
        f"{_MODEL}expert_tensor_parallel_size": lambda value: whole(value) > 1,
        f"{_MODEL}moe_token_dispatcher_type": unlike("alltoall"),
        "actor.optim.optimizer": unlike(*_ADAMW),
        "actor.fsdp_config.cpu_offload": truth,
        "actor.megatron.tp_comm_overlap_cfg": anything,
        "critic.use_critic_model": truth,
        "reward.use_reward_model": truth,
        "rollout.sglang.use_torch_compile": truth,
    },
    required=("algorithm.group_size", "rollout.rollout_backend"),
    tables={"cluster.component_placement.": "components"},
)  # fmt: skip
