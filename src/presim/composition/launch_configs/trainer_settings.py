"""Arguments of Hugging Face's Trainer, TRL and LLaMA-Factory as a model with a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from presim.composition.launch_configs.accelerate_settings import accelerate_sharding
from presim.composition.launch_configs.adapter_settings import adapter_options, optimizer_options
from presim.composition.launch_configs.deepspeed_settings import deepspeed_sharding
from presim.composition.launch_configs.model_ids import launched_model
from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.settings import Settings, read_settings
from presim.composition.launch_configs.sharding import (
    DATA_PARALLEL,
    EAGER,
    HF,
    IN_HOST_MEMORY,
    MEGATRON,
    Sharding,
    check_degrees,
)
from presim.errors import InputError

_SEQUENCES = (
    *("max_seq_length", "max_length", "cutoff_len", "model_max_length", "block_size", "max_seq_len", "seq_length"),
    *("sequence_length", "sequence_len"),
)
ADAPTERS = (
    "the program decides which modules have adapters: run it under `presim run`, or give them as --framework-args "
    '"--lora_r 16 --lora_target_modules all-linear"'
)
_OTHER_STEPS = (
    "its steps are not those of pre-training; `presim rl` has steps of reinforcement learning, and `presim run` takes "
    "the program as it is"
)
_ONLY_ADAM = "only AdamW is composed; run the program under `presim run`"
_OF_MEGATRON = (  # settings that LLaMA-Factory has for its Megatron backends alone, whatever their value
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size"),
    *("virtual_pipeline_model_parallel_size", "use_distributed_optimizer", "overlap_grad_reduce"),
    *("overlap_param_gather",),
)
_REFUSED = {
    **dict.fromkeys(
        ("beta", "max_prompt_length", "num_generations", "reward_funcs", "max_completion_length", "sft_model_path",
         "reward_model_path", "reward_model", "teacher_model_name_or_path", "pref_beta", "ref_model"), _OTHER_STEPS,
    ),
    **dict.fromkeys(
        ("use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon", "optim_config.name"), _ONLY_ADAM
    ),
    **dict.fromkeys(_OF_MEGATRON, "Megatron trains it: name MODEL, and its plan with --framework megatron"),
    "cp_size": "context parallelism is not composed here; run the program under `presim run`",
    "sequence_parallel_size": "context parallelism is not composed here; run the program under `presim run`",
    **dict.fromkeys(("lora_enable", "use_lora", "peft_type"), ADAPTERS),
    "use_llama_pro": "frozen layers are not composed; run the program under `presim run`",
    "mixture_of_depths": "layers that tokens skip are not composed; run the program under `presim run`",
    "use_kt": "KTransformers' experts on the CPU are not composed; run the program under `presim run`",
    "auto_find_batch_size": "its batch follows from running it; give --mbs, and leave it out",
    "use_cpu": "presim composes jobs of GPUs; set it to false",
    "no_cuda": "presim composes jobs of GPUs; set it to false",
}  # fmt: skip
_FASTER = {  # changes that make a step faster or smaller than what is composed
    "use_liger_kernel": "Liger's kernels", "enable_liger_kernel": "Liger's kernels", "use_liger": "Liger's kernels",
    "torch_compile": "torch.compile", "use_unsloth": "Unsloth's kernels",
    "neat_packing": "attention within packed samples alone",
    "padding_free": "attention within packed samples alone", "use_v1_kernels": "kernels of use_v1_kernels",
}  # fmt: skip
_NO_EFFECT = (
    *("output_dir", "overwrite*", "logging*", "log_*", "report_to", "run_name", "save*", "load_best*", "do_*", "eval*"),
    *("per_device_eval*", "per_gpu_eval*", "learning_rate", "lr_*", "warmup*", "num_train_epochs", "max_steps", "seed"),
    *("data_seed", "weight_decay", "adam_*", "dataset*", "train_file", "validation*", "data_*", "dataloader*", "hub*"),
    *("push_to_hub*", "resume*", "tokenizer*", "cache_dir", "trust_remote_code", "use_fast*", "token", "use_auth*"),
    *("preprocessing*", "max_samples", "max_train_samples", "max_eval_samples", "template", "plot_loss", "val_size"),
    *("ddp_timeout", "ddp_backend", "local_rank", "remove_unused*", "group_by_length", "tf32", "model_revision"),
    *("include_*", "disable_tqdm", "ignore_data*", "streaming", "config_name", "torch_dtype", "dtype", "low_cpu*"),
    *("metric*", "greater*", "bf16_full_eval", "prediction*", "use_cache", "flash_attn", "attn_implementation"),
    *("gradient_checkpointing_kwargs*", "fsdp_config.*", "fsdp_transformer*", "stage", "finetuning_type", "epochs"),
    *("packing*", "chat_template*", "optim_args", "label_names", "past_index", "jit*", "neftune*", "full_determinism"),
    *("ray_*", "nproc_per_node", "nnodes", "master_*", "node_rank", "rdzv*", "max_source*", "max_target*", "wandb*"),
    *("sample_backend", "max_new_tokens", "peft_config.lora_alpha", "model_class", "init_config.*"),
    *("train_dataset", "text_column", "assistant_only*", "completion_only*", "skip_*", "print_*", "mask_history"),
    *("fp8*", "accelerator_config*", "parallelism_config*", "average_tokens*", "tokenized_path", "media_dir"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Defaults:
    """What a trainer does where its arguments are silent."""

    sequence: int | None = None
    micro_batch: int = 8  # of Hugging Face's TrainingArguments
    recomputes: bool = False
    bf16: bool = False


TRL = Defaults(sequence=1024, recomputes=True, bf16=True)  # SFTConfig of TRL 0.20 and later
LLAMA_FACTORY = Defaults(sequence=2048, recomputes=True)  # disable_gradient_checkpointing is off
LLAMA_FACTORY_V1 = Defaults(sequence=2048, micro_batch=1, recomputes=True, bf16=True)
TRAINER = Defaults()


def trainer_plan(
    values: Mapping[str, Any],
    launcher: Sharding | None,
    defaults: Defaults,
    folder: Path,
    origin: str,
    model: str | None,
    named_fields: Collection[str],
) -> LaunchedPlan:
    """The plan of a trainer's arguments.

    ``launcher``: what starts it, if that shards. ``model``: the user's, in place of the arguments'. ``named_fields``:
    of the plan, by options.

    Raises:
        InputError: the arguments make another step than presim's programs can show, or say too little.
    """
    settings = Settings(values, origin)
    settings.refuse({name: reason for name, reason in _REFUSED.items() if not _is_one(settings, name)})
    _check_method(settings)
    model, notes = _model(settings, model)
    sharding = _sharding(settings, launcher, model, folder)
    fields = dict(sharding.fields)
    sequence = settings.number(*_SEQUENCES) or defaults.sequence
    if sequence is not None:
        fields["sequence"] = sequence
        notes.append(f"Samples count as {sequence:,} tokens, the longest that the launch allows.")
    elif "sequence" not in named_fields:
        raise InputError(f"{origin} does not say how long samples are; give --seq, e.g. --seq 4096")
    batches = settings.number("gradient_accumulation_steps") or sharding.micro_batches or 1
    fields |= _step_fields(settings, fields.get("micro_batch"), defaults)
    if (samples := settings.number("global_batch_size")) is None:
        fields.pop("global_batch", None)  # DeepSpeed's follows from the others, or it refuses the launch
    else:
        fields["global_batch"] = samples
    adapters = adapter_options(settings, sharding)
    framework, precision, format_notes = _numbers(settings, sharding, defaults, has_adapters=bool(adapters))
    word = settings.text("optim", "optimizer")
    optim, optimizer = optimizer_options(word, framework, fields.get("data_style", ""), origin)
    fields |= optimizer
    if framework != MEGATRON:
        check_degrees(fields, origin)
    if sharding is DATA_PARALLEL:
        notes.append("It names no FSDP and no DeepSpeed, so ranks hold the whole model (DistributedDataParallel).")
    if settings.switch("activation_offloading"):
        notes.append(IN_HOST_MEMORY)
    notes += [*format_notes, *_faster(settings), *settings.unread_note(_NO_EFFECT)]
    overrides = (*(sharding.overrides if framework == sharding.framework else ()), *adapters, *optim)
    return LaunchedPlan(
        model, fields, precision, overrides, sharding.nodes, None, (*notes, *sharding.notes), framework,
        sharding.world_size, None if "global_batch" in fields else batches, sharding.copies,
    )  # fmt: skip


def _model(settings: Settings, model: str | None) -> tuple[str, list[str]]:
    """The user's model or the arguments', and a note where that has another name here."""
    model_id = settings.text("model_name_or_path", "model_id", "model_name", "model", "base_model")
    if model is not None:
        return model, []
    if model_id is None:
        raise InputError(f"{settings.origin} names no model; name MODEL before --from")
    return launched_model(model_id, settings.origin)


def _step_fields(settings: Settings, micro_batch: int | None, defaults: Defaults) -> dict[str, Any]:
    """``micro_batch``: DeepSpeed's, where the trainer says none."""
    samples = settings.number("per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size")
    fields: dict[str, Any] = {"micro_batch": samples or micro_batch or defaults.micro_batch}
    if _recomputes(settings, defaults):
        fields["recompute"] = "full"
    if (norm := settings.value("max_grad_norm")) is not None:
        fields["clip"] = float(str(norm)) > 0
    return fields


def _is_one(settings: Settings, name: str) -> bool:
    return name.endswith("_size") and name not in _OF_MEGATRON and settings.number(name) == 1


def _sharding(settings: Settings, launcher: Sharding | None, model: str, folder: Path) -> Sharding:
    """By a configuration of DeepSpeed, by the trainer's own FSDP, or by the launcher; else DistributedDataParallel."""
    settings.inner("dist_config")
    names = ("deepspeed", "deepspeed_config", "dist_config.config_file")
    file = next((text for text in map(settings.text, names) if text and text.lower() not in ("true", "false")), None)
    if file is not None:
        values = read_settings(_existing(folder, file), "configuration of DeepSpeed")
        sharding = deepspeed_sharding(values, model, Path(file).name)
        if launcher is not None:
            sharding = dataclasses.replace(sharding, nodes=launcher.nodes, world_size=launcher.world_size)
        return sharding
    if inner := settings.inner("deepspeed"):
        return deepspeed_sharding(inner, model, settings.origin)
    words = settings.value("fsdp")
    kinds = words if isinstance(words, list) else str(words or "").replace(",", " ").split()
    kinds = ["fsdp2"] if settings.text("dist_config.name") == "fsdp2" else [str(kind) for kind in kinds]
    if kinds and kinds[0].lower() not in ("false", "none"):
        return _own_fsdp(settings, kinds, launcher, folder)
    return launcher or DATA_PARALLEL


def _own_fsdp(settings: Settings, kinds: list[str], launcher: Sharding | None, folder: Path) -> Sharding:
    """FSDP by the trainer's own arguments: ``--fsdp "full_shard auto_wrap" --fsdp_config FILE``."""
    if "offload" in kinds:
        raise InputError(f"{settings.origin} has fsdp with offload: parameters in host memory are not composed")
    inner = settings.inner("fsdp_config")
    if file := settings.text("fsdp_config"):
        inner = read_settings(_existing(folder, file), "configuration of FSDP")
    strategy = next((kind.upper() for kind in kinds if kind.lower() in ("shard_grad_op", "hybrid_shard")), None)
    named_values = {f"fsdp_{name.removeprefix('fsdp_')}": value for name, value in inner.items()}
    config = {"fsdp_sharding_strategy": strategy, "fsdp_version": 2 if "fsdp2" in kinds else None, **named_values}
    if config.pop("fsdp_version", None) or "fsdp_version" in named_values:
        config["fsdp_version"] = named_values.get("fsdp_version", 2)
    values: dict[str, Any] = {"distributed_type": "FSDP", "fsdp_config": config}
    if launcher is not None:
        values |= {"num_machines": launcher.nodes, "num_processes": launcher.world_size}
    return accelerate_sharding(values, None, folder, settings.origin)


def _existing(folder: Path, file: str) -> Path:
    """A file that a launch names: from its folder, from where the command runs, or beside it."""
    candidates = (folder / file, Path(file), folder / Path(file).name)
    return next((path for path in candidates if path.is_file()), Path(file))


def _check_method(settings: Settings) -> None:
    method = settings.text("finetuning_type") or "full"
    if method not in ("full", "lora"):
        raise InputError(f"{settings.origin} has finetuning_type: {method}: full training and LoRA are composed")
    stage = settings.text("stage") or "sft"
    if stage not in ("sft", "pt"):
        raise InputError(
            f"{settings.origin} has stage: {stage}, whose steps are not those of pre-training; `presim rl` has steps "
            "of reinforcement learning, and `presim run` takes the program as it is"
        )


def _recomputes(settings: Settings, defaults: Defaults) -> bool:
    if settings.switch("disable_gradient_checkpointing"):
        return False
    return settings.switch("gradient_checkpointing", "enable_activation_checkpointing", default=defaults.recomputes)


def _numbers(
    settings: Settings, sharding: Sharding, defaults: Defaults, *, has_adapters: bool
) -> tuple[str, str | None, list[str]]:
    """The framework that has these numbers, its precision, and notes.

    Raises:
        InputError: the launch trains in fp32.
    """
    notes: list[str] = []
    is_fp16 = settings.switch("fp16") or sharding.number_format == "fp16"
    is_bf16 = settings.switch("bf16", default=defaults.bf16 and not is_fp16) or sharding.number_format in (
        "bf16",
        "fp8",
    )
    weights = settings.text("torch_dtype", "dtype")
    has_bf16_weights = settings.switch("pure_bf16") or weights in ("bfloat16", "bf16")
    if not (is_fp16 or is_bf16 or has_bf16_weights):
        raise InputError(
            f"{settings.origin} has neither bf16 nor fp16: it trains in fp32, which presim's programs do not"
        )
    if is_fp16 and not is_bf16:
        notes.append("The launch's fp16 is priced as bf16, without its scaled loss.")
    is_fp8 = settings.switch("fp8") or sharding.number_format == "fp8"
    if is_fp8 and (settings.text("fp8_backend") or "torchao").lower() not in ("torchao", "ao", "auto"):
        raise InputError(f"{settings.origin} has FP8 by {settings.text('fp8_backend')}; presim's program has torchao's")
    if is_fp8 and sharding.framework != HF:
        raise InputError(f"{settings.origin} has FP8 under {sharding.framework}; presim has it under FSDP and DDP")
    if (
        has_bf16_weights
        and sharding.framework == HF
        and sharding.fields.get("data_style") == "ddp"
        and not (is_fp8 or has_adapters)
    ):
        notes.append("Weights and their updates are in bf16, as in the launch: composed from eager layers.")
        return EAGER, None, notes
    return sharding.framework, "fp8-current" if is_fp8 else "bf16", notes


def _faster(settings: Settings) -> list[str]:
    names = sorted({text for name, text in _FASTER.items() if settings.switch(name)})
    if settings.text("kernel_config.name") is not None:
        names.append("kernels of kernel_config")
    return [f"Left out, so that time and memory are upper bounds: {', '.join(names)}."] if names else []
