"""accelerate's configuration as a plan's sharding: DistributedDataParallel, FSDP, DeepSpeed, or Megatron-LM."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from presim.composition.launch_configs.deepspeed_settings import deepspeed_sharding
from presim.composition.launch_configs.settings import Settings, read_settings
from presim.composition.launch_configs.sharding import HF, MEGATRON, Sharding
from presim.errors import InputError

_KINDS = ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
_STRATEGIES = {  # names and numbers of FSDP1's strategies
    "FULL_SHARD": ("fsdp2", True), "1": ("fsdp2", True), "SHARD_GRAD_OP": ("fsdp2", False), "2": ("fsdp2", False),
    "NO_SHARD": ("ddp", True), "3": ("ddp", True), "HYBRID_SHARD": ("hsdp", True), "4": ("hsdp", True),
    "HYBRID_SHARD_ZERO2": ("hsdp", False), "5": ("hsdp", False),
}  # fmt: skip
_FSDP1 = "FSDP1 is captured as FSDP2, which shards each parameter by itself and gathers as often."
_REFUSED = {
    "use_cpu": "presim composes jobs of GPUs; set it to false",
    "fsdp_config.fsdp_offload_params": "parameters in host memory are not composed; run the program under `presim run`",
    "parallelism_config.parallelism_config_sp_size": "sequence parallelism of DeepSpeed is not composed; run the "
    "program under `presim run`",
}
_NO_EFFECT = (
    *("compute_environment", "debug", "downcast_bf16", "machine_rank", "main_*", "rdzv_*", "same_network", "tpu_*"),
    *("enable_cpu_affinity", "gpu_ids", "fsdp_config.fsdp_state_dict_type", "fsdp_config.fsdp_cpu_ram*", "commands"),
    *("fsdp_config.fsdp_sync_module_states", "fsdp_config.fsdp_use_orig_params", "fsdp_config.fsdp_transformer_layer*"),
    *("fsdp_config.fsdp_backward_prefetch*", "fsdp_config.fsdp_forward_prefetch", "deepspeed_config.deepspeed_*"),
    *("deepspeed_config.zero3_init_flag", "deepspeed_config.zero3_save*", "max_restarts", "role", "monitor_interval"),
    *("parallelism_config.*", "command_file", "tpu*", "log_with", "fsdp_config.fsdp_limit_all_gathers"),
)


def accelerate_sharding(
    values: Mapping[str, Any], model: str | None, folder: Path, origin: str, *, no_own_number_format: bool = False
) -> Sharding:
    """The sharding of a configuration.

    ``folder``: of files that it names. ``no_own_number_format``: ``no`` counts as not said, as with a trainer that
    sets it.

    Raises:
        InputError: it makes another step than presim's programs can show.
    """
    settings = Settings(values, origin)
    if int(settings.number("parallelism_config.parallelism_config_sp_size") or 1) == 1:
        settings.values.pop("parallelism_config.parallelism_config_sp_size", None)
    settings.refuse(_REFUSED)
    kind = (settings.text("distributed_type") or "NO").upper().replace("FALSE", "NO")  # YAML's NO is false
    if kind not in _KINDS:
        raise InputError(f"{origin} has distributed_type {kind}; presim reads {', '.join(_KINDS)}")
    nodes, world_size = settings.size("num_machines"), settings.size("num_processes")
    sharding = _sharding(settings, kind, model, folder, nodes)
    number_format = sharding.number_format or settings.text("mixed_precision")
    number_format = "no" if number_format == "False" else number_format
    if number_format == "no" and no_own_number_format:
        number_format = None
    notes = [*sharding.notes]
    if settings.text("dynamo_backend", "dynamo_config.dynamo_backend") not in (None, "no", "NO"):
        notes.append("The launch compiles the model (dynamo_backend), which is left out: times are upper bounds.")
        settings.inner("dynamo_config")
    if number_format == "fp8" and (settings.text("fp8_config.backend") or "AO").upper() != "AO":
        raise InputError(
            f"{origin} has FP8 by {settings.text('fp8_config.backend')}; presim's program has torchao's (AO)"
        )
    settings.inner("fp8_config")
    notes += settings.unread_note(_NO_EFFECT)
    return dataclasses.replace(
        sharding, notes=tuple(notes), number_format=number_format, nodes=nodes, world_size=world_size
    )


def _sharding(settings: Settings, kind: str, model: str | None, folder: Path, nodes: int | None) -> Sharding:
    """By the kind of the configuration. ``nodes``: copies of shards under FSDP1's hybrid strategies."""
    micro_batches = settings.number("gradient_accumulation_steps")
    if kind == "FSDP":
        fields, notes = _fsdp_fields(settings)
        copies = settings.number("parallelism_config.parallelism_config_dp_replicate_size") or 1
        if copies > 1:
            fields["data_style"] = "hsdp"
        elif fields["data_style"] == "hsdp":
            copies = _copies_by_node(settings, nodes)
        fields |= _degrees(settings)
        return Sharding(HF, fields, notes=tuple(notes), copies=copies, micro_batches=micro_batches)
    if kind == "DEEPSPEED":
        return deepspeed_sharding(_deepspeed_values(settings, folder), model, settings.origin)
    if kind == "MEGATRON_LM":
        return Sharding(MEGATRON, _megatron_fields(settings), micro_batches=_megatron_batches(settings))
    return Sharding(HF, {"data_style": "ddp"}, micro_batches=micro_batches)


def _fsdp_fields(settings: Settings) -> tuple[dict[str, Any], list[str]]:
    prefix = "fsdp_config."
    policy = settings.text(f"{prefix}fsdp_auto_wrap_policy")
    if policy not in (None, "TRANSFORMER_BASED_WRAP"):
        raise InputError(
            f"{settings.origin} has fsdp_auto_wrap_policy {policy}; presim's program wraps blocks: use "
            "TRANSFORMER_BASED_WRAP"
        )
    version = settings.number(f"{prefix}fsdp_version") or 1
    strategy = settings.text(f"{prefix}fsdp_sharding_strategy")
    reshard = settings.text(f"{prefix}fsdp_reshard_after_forward")
    if reshard is not None and reshard.lower() not in ("true", "false"):
        strategy, reshard = reshard, None  # FSDP1's strategy under its new name
    if strategy is not None and strategy.upper() not in _STRATEGIES:
        raise InputError(f"{settings.origin} has the strategy {strategy} of FSDP; it has {', '.join(_STRATEGIES)}")
    style, reshards = _STRATEGIES[(strategy or "FULL_SHARD").upper()]
    fields: dict[str, Any] = {
        "data_style": style,
        "reshard": reshards if reshard is None else reshard.lower() == "true",
    }
    if settings.switch(f"{prefix}fsdp_activation_checkpointing"):
        fields["recompute"] = "full"
    return fields, [_FSDP1] if version == 1 and style != "ddp" else []


def _copies_by_node(settings: Settings, nodes: int | None) -> int:
    """Copies of shards under FSDP1's hybrid strategies: each node has one."""
    if nodes is None or nodes == 1:
        raise InputError(
            f"{settings.origin} shards within each node, and has {nodes or 'no'} num_machines; give it, or FULL_SHARD"
        )
    return nodes


def _degrees(settings: Settings) -> dict[str, Any]:
    """Tensor and context parallelism, which presim's program refuses by name."""
    names = {"tensor": "tp_size", "context": "cp_size"}
    degrees = {field: settings.number(f"parallelism_config.parallelism_config_{name}") for field, name in names.items()}
    return {field: degree for field, degree in degrees.items() if degree is not None and degree > 1}


def _deepspeed_values(settings: Settings, folder: Path) -> dict[str, Any]:
    """DeepSpeed's own configuration: of a file, or by accelerate's names."""
    if file := settings.text("deepspeed_config.deepspeed_config_file"):
        return read_settings(folder / file, "configuration of DeepSpeed")
    prefix = "deepspeed_config."
    stage = settings.number(f"{prefix}zero_stage")
    zero: dict[str, Any] = {"stage": 2 if stage is None else stage}  # accelerate's default
    for name in ("offload_optimizer", "offload_param"):
        zero[name] = {"device": settings.text(f"{prefix}{name}_device") or "none"}
    return {
        "zero_optimization": zero,
        "gradient_accumulation_steps": settings.value(f"{prefix}gradient_accumulation_steps"),
        "gradient_clipping": settings.value(f"{prefix}gradient_clipping"),
    }


def _megatron_fields(settings: Settings) -> dict[str, Any]:
    prefix = "megatron_lm_config.megatron_lm_"
    fields: dict[str, Any] = {
        "tensor": settings.number(f"{prefix}tp_degree") or 1,
        "pipeline": settings.number(f"{prefix}pp_degree") or 1,
        "data_style": "zero1" if settings.switch(f"{prefix}use_distributed_optimizer") else "ddp",
    }
    fields["sequence_parallel"] = settings.switch(f"{prefix}sequence_parallelism") and fields["tensor"] > 1
    if settings.switch(f"{prefix}recompute_activations"):
        raise InputError(
            f"{settings.origin} has megatron_lm_recompute_activations, selective recomputation: leave it out, and give "
            "--framework-args 'model.recompute_granularity=selective model.recompute_modules=[core_attn]'"
        )
    fields["clip"] = float(settings.text(f"{prefix}gradient_clipping") or 1.0) > 0
    return fields


def _megatron_batches(settings: Settings) -> int | None:
    return settings.number("megatron_lm_config.megatron_lm_num_micro_batches")
