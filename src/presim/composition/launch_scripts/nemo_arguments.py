"""YAML files of NeMo 1 (`megatron_gpt_pretraining.py`, NeMo-Framework-Launcher) as arguments of Megatron-LM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim.composition.launch_configs.settings import Settings
from presim.composition.launch_scripts.megatron_arguments import Arguments, MegatronLaunch
from presim.errors import InputError

_VALUES = {  # fields of the model with an option's own meaning
    "micro_batch_size": "--micro-batch-size", "global_batch_size": "--global-batch-size",
    "tensor_model_parallel_size": "--tensor-model-parallel-size", "num_layers": "--num-layers",
    "pipeline_model_parallel_size": "--pipeline-model-parallel-size", "hidden_size": "--hidden-size",
    "context_parallel_size": "--context-parallel-size", "ffn_hidden_size": "--ffn-hidden-size",
    "expert_model_parallel_size": "--expert-model-parallel-size", "kv_channels": "--kv-channels",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "num_attention_heads": "--num-attention-heads", "max_position_embeddings": "--max-position-embeddings",
    "layernorm_epsilon": "--norm-epsilon", "make_vocab_size_divisible_by": "--make-vocab-size-divisible-by",
    "hidden_dropout": "--hidden-dropout", "attention_dropout": "--attention-dropout", "rotary_base": "--rotary-base",
    "num_moe_experts": "--num-experts", "moe_router_topk": "--moe-router-topk",
    "activations_checkpoint_granularity": "--recompute-granularity",
}  # fmt: skip
_SWITCHES = {  # fields that are off unless set
    "sequence_parallel": "--sequence-parallel", "ub_tp_comm_overlap": "--tp-comm-overlap",
    "cross_entropy_loss_fusion": "--cross-entropy-loss-fusion", "fp8_params": "--fp8-param-gather",
    "optim.overlap_grad_sync": "--overlap-grad-reduce", "optim.overlap_grad_reduce": "--overlap-grad-reduce",
    "optim.overlap_param_sync": "--overlap-param-gather", "optim.overlap_param_gather": "--overlap-param-gather",
    "cpu_offloading": "--cpu-offloading-num-layers", "moe_grouped_gemm": "--moe-grouped-gemm",
    "account_for_embedding_in_pipeline_split": "--account-for-embedding-in-pipeline-split",
    "account_for_loss_in_pipeline_split": "--account-for-loss-in-pipeline-split",
}  # fmt: skip
_INVERSE = {  # options that say that a field is off, as it is unless set
    "apply_rope_fusion": "--no-rope-fusion",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
}
_ACTIVATIONS = {"swiglu": ["--swiglu"], "fast-swiglu": ["--swiglu"], "gelu": [], "squared-relu": ["--squared-relu"]}
_OPTIMIZERS = {
    "distributed_fused_adam": ["--use-distributed-optimizer"],
    "mcore_distributed_optim": ["--use-distributed-optimizer"],
    "fused_adam": [], "adamw": [], "adam": [],
}  # fmt: skip
_NO_EFFECT = (
    *("run.*", "exp_manager.*", "hydra.*", "defaults", "trainer.*", "name", "restore_from_path", "model.data.*"),
    *("model.tokenizer.*", "model.optim.*", "model.init_method_std", "model.use_scaled_init_method", "model.seed"),
    *("model.nsys_profile.*", "model.fp8*", "model.resume_from_checkpoint", "model.mcore_gpt", "model.native_amp*"),
    *("model.megatron_amp_O2", "model.transformer_engine", "model.pre_process", "model.post_process", "model.gc_*"),
    *("model.apex_transformer_log_level", "model.normalize_attention_scores", "model.attention_type", "base_results*"),
    *("model.transformer_block_type", "model.persist_layer_norm", "model.apply_query_key_layer_scaling"),
    *("model.hysteresis", "model.do_layer_norm_weight_decay", "model.use_flash_attention", "model.rotary_percentage"),
    *("model.grad_allreduce_chunk_size_mb", "model.grad_div_ar_fusion", "model.gradient_as_bucket_view"),
    *("model.*_fusion", "model.overlap_p2p_comm", "model.batch_p2p_comm", "model.wgrad_deferral_limit", "data_dir"),
    *("model.scale_positional_embedding", "model.ub_tp_comm_overlap_cfg*", "model.ffn_dropout", "training"),
    *("model.activations_checkpoint_*", "model.num_micro_batches_with_partial*", "model.use_emha"),
)


def is_nemo(values: Mapping[str, Any]) -> bool:
    """Whether a file's sections are those of NeMo 1."""
    model = values.get("model")
    return isinstance(model, Mapping) and "encoder_seq_length" in model and "trainer" in values


def nemo_launch(values: Mapping[str, Any], origin: str) -> tuple[MegatronLaunch, list[str]]:
    """The arguments and sizes of a file, and what of it is not understood.

    Raises:
        InputError: a field is computed from others, or has no option of Megatron-LM's.
    """
    settings = Settings(values, origin)
    for name, value in settings.values.items():
        if "${" in str(value) and name.removeprefix("model.") in (*_VALUES, "encoder_seq_length", "num_query_groups"):
            raise InputError(f"{name} of {origin} is {value}, computed from other fields; write its value")
    if scheme := settings.text("model.peft.peft_scheme"):
        raise InputError(
            f"{origin} trains adapters ({scheme}); leave model.peft out, and give --framework-args peft={scheme}"
        )
    words = ["--seq-length", str(settings.number("model.encoder_seq_length"))]
    for field, option in _VALUES.items():
        if (value := settings.value(f"model.{field}")) is not None:
            words += [option, str(value)]
    words += [option for field, option in _SWITCHES.items() if settings.switch(f"model.{field}")]
    words += [option for field, option in _INVERSE.items() if not settings.switch(f"model.{field}")]
    words += [*_layers(settings), *_recomputation(settings), *_training(settings)]
    launch = MegatronLaunch(Arguments(words), settings.number("trainer.num_nodes"), settings.number("trainer.devices"))
    return launch, settings.unread_note(_NO_EFFECT)


def _layers(settings: Settings) -> list[str]:
    words = []
    if (groups := settings.number("model.num_query_groups")) is not None:
        words += ["--group-query-attention", "--num-query-groups", str(groups)]
    normalization = (settings.text("model.normalization") or "layernorm").lower()
    words += {"rmsnorm": ["--normalization", "RMSNorm"], "layernorm1p": ["--apply-layernorm-1p"]}.get(normalization, [])
    activation = settings.text("model.activation") or "gelu"
    if activation not in _ACTIVATIONS:
        raise InputError(f"{settings.origin} has the activation {activation}, which no family here has; name MODEL")
    words += _ACTIVATIONS[activation]
    if not settings.switch("model.bias", default=True):
        words.append("--disable-bias-linear")
    if not settings.switch("model.share_embeddings_and_output_weights", default=True):
        words.append("--untie-embeddings-and-output-weights")
    position = settings.text("model.position_embedding_type") or "learned_absolute"
    return [*words, "--position-embedding-type", position]


def _recomputation(settings: Settings) -> list[str]:
    words = []
    if settings.text("model.activations_checkpoint_granularity") == "full":
        words += ["--recompute-method", settings.text("model.activations_checkpoint_method") or "uniform"]
        words += ["--recompute-num-layers", str(settings.number("model.activations_checkpoint_num_layers") or 1)]
    return words


def _training(settings: Settings) -> list[str]:
    precision = settings.text("trainer.precision") or "32"
    words = ["--bf16"] if precision.startswith("bf16") else ["--fp16"] if precision.startswith("16") else []
    if settings.switch("model.fp8"):
        words += ["--fp8-format", "e4m3" if settings.switch("model.fp8_e4m3") else "hybrid"]
    optimizer = settings.text("model.optim.name") or "fused_adam"
    words += _OPTIMIZERS.get(optimizer, ["--optimizer", optimizer])
    if settings.text("model.optim.grad_sync_dtype") in ("bf16", "bfloat16"):
        words.append("--grad-reduce-in-bf16")
    return words
