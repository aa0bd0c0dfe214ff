"""axolotl's YAML as a model with a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from presim.composition.launch_configs.accelerate_settings import accelerate_sharding
from presim.composition.launch_configs.adapter_settings import adapter_options, optimizer_options
from presim.composition.launch_configs.deepspeed_settings import deepspeed_sharding
from presim.composition.launch_configs.model_ids import launched_model
from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.settings import Settings, read_settings
from presim.composition.launch_configs.sharding import DATA_PARALLEL, EAGER, HF, IN_HOST_MEMORY, Sharding, check_degrees
from presim.errors import InputError

_OTHER_STEPS = (
    "its steps are not those of pre-training; `presim rl` has steps of reinforcement learning, and `presim run` "
    "takes the program as it is"
)
_ONLY_RUN = "it is not composed; run the program under `presim run`"
_REFUSED = {
    "lisa_n_layers": _ONLY_RUN, "gptq": "quantised weights are not composed",
    "rl": _OTHER_STEPS, "reward_model": _OTHER_STEPS, "process_reward_model": _OTHER_STEPS, "qat.activation_dtype":
    _ONLY_RUN, "qat.weight_dtype": _ONLY_RUN, "relora": _ONLY_RUN, "unfrozen_parameters": _ONLY_RUN,
    "expert_parallel_size": _ONLY_RUN, "is_multimodal": _ONLY_RUN, "processor_type": _ONLY_RUN,
    "diffusion.noise_schedule": _ONLY_RUN, "ebft": _ONLY_RUN,
}  # fmt: skip
_DEGREES = (
    ("tensor_parallel_size", "tensor"), ("context_parallel_size", "context"), ("sequence_parallel_degree", "context"),
)  # fmt: skip
_FASTER = {
    "torch_compile": "torch.compile",
    "liger_rope": "Liger's kernels", "liger_rms_norm": "Liger's kernels", "liger_glu_activation": "Liger's kernels",
    "liger_fused_linear_cross_entropy": "Liger's kernels", "liger_layer_norm": "Liger's kernels",
    "liger_cross_entropy": "Liger's kernels", "cut_cross_entropy": "cut cross-entropy",
    "flash_attn_cross_entropy": "fused cross-entropy", "flash_attn_rms_norm": "fused norms",
    "flash_attn_fuse_mlp": "fused products", "flash_attn_fuse_qkv": "fused products", "use_kernels": "hub kernels",
    "lora_mlp_kernel": "axolotl's kernels of adapters", "lora_qkv_kernel": "axolotl's kernels of adapters",
    "lora_o_kernel": "axolotl's kernels of adapters",
    "chunked_cross_entropy": "chunked cross-entropy", "unsloth_rms_norm": "Unsloth's kernels",
    "unsloth_rope": "Unsloth's kernels", "unsloth_cross_entropy_loss": "Unsloth's kernels",
}  # fmt: skip
_NO_EFFECT = (
    *("datasets*", "dataset*", "test_datasets*", "val_set_size", "output_dir", "chat_template*", "wandb*", "hub*"),
    *("num_epochs", "max_steps", "lr_*", "learning_rate", "warmup*", "weight_decay", "adam_*", "cosine*", "seed"),
    *("logging*", "evals*", "eval*", "save*", "saves*", "load_best*", "strict", "tokenizer*", "model_type", "tf32"),
    *("special_tokens*", "tokens", "eot_tokens*", "trust_remote_code", "resume*", "auto_resume*", "debug", "plugins"),
    *("gradient_checkpointing_kwargs*", "pad_to_sequence_len", "sample_packing*", "eval_sample_packing", "mlflow*"),
    *("flash_attention", "sdp_attention", "xformers_attention", "attn_implementation", "train_on_inputs", "lora_*"),
    *("group_by_length", "early_stopping*", "is_*_derived_model", "base_model_config", "shuffle*", "gpu_memory*"),
    *("fsdp_config.*", "ddp_*", "dataloader*", "remove_unused*", "pretraining_dataset*", "comet*", "use_tensorboard"),
    *("streaming*", "low_cpu*", "experimental_skip*", "trackio*", "model_config*", "flex_attn_compile*", "xgrammar"),
    *("noisy_embedding*", "neftune*", "overrides_of_model*", "default_system*", "excess_length*", "revision_of*"),
    *("dataset_processes", "torch_dtype", "optim_args*", "swanlab*", "gc_steps", "unsloth*"),
)  # fmt: skip


def axolotl_plan(
    values: Mapping[str, Any], folder: Path, origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    """The plan of a configuration. ``folder``: of files that it names. ``model``: the user's, in place of its own.

    Raises:
        InputError: it makes another step than presim's programs can show, or says too little.
    """
    settings = Settings(values, origin)
    settings.refuse({name: reason for name, reason in _REFUSED.items() if not _is_unused(settings, name)})
    notes: list[str] = []
    model_id = settings.text("base_model")
    if model is None:
        if model_id is None:
            raise InputError(f"{origin} has no base_model; name MODEL before --from")
        model, notes = launched_model(model_id, origin)
    sharding = _sharding(settings, model, folder)
    fields: dict[str, Any] = {**sharding.fields, "micro_batch": settings.number("micro_batch_size") or 1}
    fields.pop("global_batch", None)
    sequence = settings.number("sequence_len") or 512  # axolotl's default
    fields["sequence"] = sequence
    notes.append(f"Samples count as {sequence:,} tokens, the longest that the launch allows.")
    checkpointing = str(settings.value("gradient_checkpointing") or "").lower()
    if checkpointing in ("true", "unsloth", "offload", "offload_disk"):
        fields["recompute"] = "full"
    if checkpointing.startswith("offload") or settings.value("activation_offloading"):
        notes.append(IN_HOST_MEMORY)
    if (norm := settings.value("max_grad_norm")) is not None:
        fields["clip"] = float(str(norm)) > 0
    fields |= {field: degree for name, field in _DEGREES if (degree := settings.number(name) or 1) > 1}
    batches = settings.number("gradient_accumulation_steps") or sharding.micro_batches or 1
    adapters = adapter_options(settings, sharding)
    framework, precision, format_notes = _numbers(settings, sharding, has_adapters=bool(adapters))
    optim, optimizer = optimizer_options(settings.text("optimizer"), framework, fields["data_style"], origin)
    fields |= optimizer
    check_degrees(fields, origin)
    notes += [*format_notes, *_faster(settings), *sharding.notes, *settings.unread_note(_NO_EFFECT)]
    overrides = (*(sharding.overrides if framework == sharding.framework else ()), *adapters, *optim)
    return LaunchedPlan(
        model, fields, precision, overrides, None, None,
        tuple(notes), framework, None, batches, sharding.copies,
    )  # fmt: skip


def _is_unused(settings: Settings, name: str) -> bool:
    return name.endswith("_parallel_size") and settings.number(name) == 1


def _sharding(settings: Settings, model: str, folder: Path) -> Sharding:
    if file := settings.text("deepspeed"):
        path = next((path for path in (folder / file, Path(file), folder / Path(file).name) if path.is_file()), None)
        if path is None:
            raise InputError(
                f"{settings.origin} has deepspeed: {file}, and there is no such file; run presim where axolotl runs"
            )
        return deepspeed_sharding(read_settings(path, "configuration of DeepSpeed"), model, path.name)
    copies = settings.number("dp_replicate_size") or 1
    shards = settings.value("fsdp") or settings.number("dp_shard_size")
    inner = settings.inner("fsdp_config")
    if not shards and not inner:
        return DATA_PARALLEL
    config = {f"fsdp_{name.removeprefix('fsdp_')}": value for name, value in inner.items()}
    config.setdefault("fsdp_version", settings.number("fsdp_version") or 1)
    parallelism = {"parallelism_config_dp_replicate_size": copies}
    values = {"distributed_type": "FSDP", "fsdp_config": config, "parallelism_config": parallelism}
    return accelerate_sharding(values, None, folder, settings.origin)


def _numbers(settings: Settings, sharding: Sharding, *, has_adapters: bool) -> tuple[str, str | None, list[str]]:
    """The framework that has these numbers, its precision, and notes.

    axolotl loads weights in bf16, which FSDP and DeepSpeed keep in fp32 beside.

    Raises:
        InputError: the launch trains in fp32.
    """
    is_bf16 = str(settings.value("bf16", "bfloat16") or "").lower() in ("true", "auto", "full")
    is_fp8 = settings.switch("fp8")
    settings.inner("fp8")
    settings.value("fp8_enable_fsdp_float8_all_gather")
    if not (is_bf16 or is_fp8 or settings.switch("fp16", "float16")):
        raise InputError(
            f"{settings.origin} has neither bf16 nor fp16: it trains in fp32, which presim's programs do not"
        )
    notes = [] if is_bf16 or is_fp8 else ["The launch's fp16 is priced as bf16, without its scaled loss."]
    if is_fp8 and sharding.framework != HF:
        raise InputError(f"{settings.origin} has fp8 under {sharding.framework}; presim has it under FSDP")
    if sharding.framework == HF and sharding.fields["data_style"] == "ddp" and not (is_fp8 or has_adapters):
        notes.append("Weights and their updates are in bf16, as in the launch: composed from eager layers.")
        return EAGER, None, notes
    return sharding.framework, "fp8-current" if is_fp8 else "bf16", notes


def _faster(settings: Settings) -> list[str]:
    kinds = {
        text for name, text in _FASTER.items() if str(settings.value(name) or False).lower() not in ("false", "auto")
    }
    if any("cut_cross_entropy" in str(plugin) for plugin in settings.value("plugins") or ()):
        kinds.add("cut cross-entropy")
    return [f"Left out, so that time and memory are upper bounds: {', '.join(sorted(kinds))}."] if kinds else []
