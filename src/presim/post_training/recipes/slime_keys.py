"""Arguments of slime and Miles: Megatron's and their own, slime/utils/arguments.py of commit 624b824a (2026-08)."""

from __future__ import annotations

from typing import Any

from presim.post_training.recipes.key_table import (
    Framework,
    Key,
    above,
    anything,
    choice,
    estimator,
    granularity,
    inverted,
    is_positive,
    largest,
    real,
    truth,
    unlike,
    whole,
)

_NO_GRPO = "supervised training generates nothing; presim rl takes jobs that alternate generation and training"


def _is_continuous(path: Any) -> bool:
    """The rollout that goes on while weights change (slime/rollout/fully_async_rollout.py)."""
    return "fully_async" in str(path)


def _rollout_refusal(path: Any) -> str:
    return _NO_GRPO if "sft" in str(path) else ""


def _loss_refusal(kind: Any) -> str:
    return _NO_GRPO if "sft" in str(kind) else ""


def _train_only(is_enabled: Any) -> str:
    return _NO_GRPO if truth(is_enabled) else ""


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
        "recompute-granularity": Key("recompute", granularity, "none"),
        "advantage-estimator": Key("algorithm", estimator),
        "train-backend": Key("dp_style", choice({"megatron": "zero1", "fsdp": "fsdp2"}), "zero1"),
        "gradient-checkpointing": Key("checkpoints", truth),
        "num-layers-per-virtual-pipeline-stage": Key("virtual_layers", whole),
        "micro-batch-size": Key("micro_sequences", whole, 1),
        "use-dynamic-batch-size": Key("packs_tokens", truth, False),
        "balance-data": Key("balance", truth, False),
        "optimizer-cpu-offload": Key("updates_on_host", truth),
        "moe-enable-deepep": Key("uses_deepep", truth),
        "use-rollout-logprobs": Key("old_logprobs", inverted),
        "use-rollout-routing-replay": Key("routing_replay", truth),
        "kl-coef": Key("reference_in_reward", is_positive),
        "lora-rank": Key("lora_rank", whole),
        "train-async": Key("staleness", lambda is_ahead: float(truth(is_ahead))),
        "rollout-function-path": Key("is_continuous", _is_continuous),
        "rollout-max-context-len": Key("longest_sequence", whole),
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
        "sglang-cuda-graph-bs": Key("engine.graph_tokens", largest),
        "sglang-cuda-graph-max-bs": Key("engine.graph_tokens", whole),
        "sglang-kv-cache-dtype": Key("engine.cache", choice({"auto": "bf16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"})),
        "sglang-quantization": Key("engine.weights", choice({"fp8": "fp8"})),
        "sglang-expert-parallel-size": Key("rollout_ep", whole),
        "sglang-ep-size": Key("rollout_ep", whole),
        "sglang-dp-size": Key("attention_ranks", whole),
        "rollout-num-gpus-per-engine": Key("engine.tp", whole, 1),
        "sglang-mem-fraction-static": Key("engine.gpu_memory_utilization", real),
    },
    (
        "load", "save*", "ref-load", "prompt-data", "input-key", "label-key", "metadata-key", "apply-chat-template",
        "rollout-shuffle", "rm-type", "num-rollout", "rollout-temperature", "rollout-top*", "eval-*",
        "n-samples-per-eval*",
        "lr*", "optimizer", "weight-decay", "adam-*", "kl-loss-*", "entropy-coef", "eps-*", "use-wandb",
        "wandb-*", "attention-dropout", "hidden-dropout", "sequence-parallel", "use-distributed-optimizer",
        "accumulate-allreduce*", "attention-softmax*", "attention-backend", "recompute-method", "recompute-num-layers",
        "qkv-format", "force", "head", "num-gpus", "disable-usage-stats", "dashboard-*", "address",
        "runtime-env-json", "sglang-enable-dp-*", "tis-*", "use-tis", "node-ip-address",
        "overlap-cpu-optimizer-d2h-h2d", "megatron-to-hf-mode", "lora-*", "target-modules", "min-lr", "num-epoch",
        "calculate-per-token-loss", "no-check-for-nan-in-loss-and-grad", "custom-rm-path", "disable-wandb*",
        "log-probs-chunk-size", "sglang-watchdog-timeout", "sglang-server-concurrency", "host", "port", "temp-dir",
        "sglang-decode-log-interval", "rollout-stop*", "custom-tis*", "bf16", "dump-details", "local-dir", "repo-type",
        "num-experts", "hidden-size", "ffn-hidden-size", "num-layers", "num-attention-heads", "use-fault-tolerance",
        "opd-kl-coef", "opd-type",
    ),
    {"rollout-function-path": _rollout_refusal, "loss-type": _loss_refusal, "debug-train-only": _train_only},
    always={"engine.kernels": "sglang"},
    unsimulated={
        "expert-tensor-parallel-size": above(1),
        "decoder-*-pipeline-num-layers": above(0),
        "use-precision-aware-optimizer": truth,
        "moe-token-dispatcher-type": unlike("alltoall"),
        "enable-mtp-training": truth,
        "optimizer": unlike("adam", "adamw"),
        "transformer-impl": unlike("transformer_engine"),
        "fp8-*": anything,
        "sglang-speculative-*": anything,
        "sglang-moe-*": anything,
        "sglang-deepep-mode": anything,
        "sglang-attention-backend": unlike("fa3", "flashinfer"),
        "sglang-page-size": above(1),
        "*deterministic*": truth,
        "recompute-method": unlike("uniform"),
        "custom-generate-function-path": anything,
        "use-opd": truth,
        "opd-teacher-*": anything,
        "rm-url": anything,
        "update-weight-*": anything,
        "balance-by-flops": truth,
        "use-routing-replay": truth,
        "partial-rollout": truth,
        "critic-*": anything,
        "use-critic": truth,
        "offload-train": inverted,
        "offload-rollout": inverted,
    },
    required=("rollout-batch-size",),
)  # fmt: skip
