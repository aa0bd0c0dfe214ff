"""DeepSpeed's configuration as a plan's sharding, and the options that it changes.

What a configuration leaves to Hugging Face's trainer (``auto``) is as that sets it. Source:
`HfTrainerDeepSpeedConfig.trainer_config_finalize`, transformers/integrations/deepspeed.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from presim.composition.graph.take import config_file
from presim.composition.launch_configs.settings import Settings
from presim.composition.launch_configs.sharding import DEEPSPEED, Sharding
from presim.errors import InputError
from presim.system.files import decode_json, read_bytes

_ZERO = "zero_optimization."
_REFUSED = {
    "amp.enabled": "presim's program for DeepSpeed trains in bf16; use bf16.enabled",
    f"{_ZERO}offload_param.device": "parameters in host memory are not composed; run the program under `presim run`",
    "tensor_parallel.autotp_size": "tensor parallelism of DeepSpeed is not composed; run it under `presim run`",
    "compression_training": "compressed layers are not composed; run the program under `presim run`",
    "data_efficiency.enabled": "batches that change are not composed; run the program under `presim run`",
    "curriculum_learning.enabled": "sequences that grow are not composed; run the program under `presim run`",
    "autotuning.enabled": "DeepSpeed would choose its own sizes; name a configuration that it chose",
    "sparse_attention": "sparse attention is not composed; run the program under `presim run`",
}
_OPTIMIZERS = ("adam", "adamw", "fusedadam", "cpuadam", "deepspeedcpuadam")
_NO_EFFECT = (
    *("steps_per_print", "wall_clock_breakdown", "scheduler*", "optimizer.params*", "zero_allow_untested_optimizer"),
    *("fp16.*", "bf16.*", "flops_profiler*", "comms_logger*", "tensorboard*", "wandb*", "csv_monitor*", "dump_state"),
    *("memory_breakdown", "checkpoint*", "logging*", "zero_force_ds_cpu_optimizer", "seed", "dataloader_drop_last"),
    *(f"{_ZERO}offload_optimizer*", f"{_ZERO}offload_param*", "data_types*", "gradient_clipping", "nebula*"),
    *("activation_checkpointing*", "train_batch_size", "train_micro_batch_size_per_gpu", "elasticity*", "checks*"),
    *("gradient_accumulation_steps",),
)


def deepspeed_sharding(values: Mapping[str, Any], model: str | None, origin: str) -> Sharding:
    """The sharding of a configuration. ``model``: sizes buckets that are left to Hugging Face's trainer.

    Raises:
        InputError: it makes another step than presim's program for DeepSpeed can show.
    """
    settings = Settings(values, origin)
    settings.refuse(_REFUSED)
    stage = settings.number(f"{_ZERO}stage") or 0
    fields: dict[str, Any] = {"data_style": "fsdp2" if stage == 3 else "zero1"}
    overrides = [] if stage in (1, 3) else [f"{_ZERO}stage={stage}"]
    overlaps = settings.switch(f"{_ZERO}overlap_comm", default=stage == 3)  # DeepSpeed's default
    fields["overlap"] = overlaps
    device = settings.text(f"{_ZERO}offload_optimizer.device") or "none"
    if device not in ("none", "cpu"):
        raise InputError(
            f"{origin} offloads the optimizer to {device}; presim has cpu: change offload_optimizer.device"
        )
    if device == "cpu":
        fields["offload_optimizer"] = "cpu"
    optimizer = settings.text("optimizer.type")
    if optimizer is not None and optimizer.lower() not in _OPTIMIZERS:
        raise InputError(f"{origin} has optimizer.type {optimizer}; presim's program for DeepSpeed has AdamW alone")
    clipping = settings.value("gradient_clipping")
    if clipping not in (None, "auto"):
        fields["clip"] = float(str(clipping)) > 0
    for name, field in (("train_micro_batch_size_per_gpu", "micro_batch"), ("train_batch_size", "global_batch")):
        if (number := settings.number(name)) is not None:
            fields[field] = number
    sizes = _sizes_by_model(settings, stage, model)
    overrides += [*_zero_fields(settings, sizes), *_other_fields(settings)]
    return Sharding(
        DEEPSPEED,
        fields,
        tuple(overrides),
        tuple(settings.unread_note(_NO_EFFECT)),
        _number_format(settings),
        micro_batches=settings.number("gradient_accumulation_steps"),
    )


def _number_format(settings: Settings) -> str | None:
    formats = {name: settings.value(f"{name}.enabled") for name in ("bf16", "bfloat16", "fp16")}
    enabled_names = [name for name, value in formats.items() if value not in (None, "auto", False)]
    if enabled_names:
        return "bf16" if enabled_names[0].startswith("b") else "fp16"
    return None if "auto" in formats.values() or not any(value is False for value in formats.values()) else "no"


def _zero_fields(settings: Settings, sizes: Mapping[str, int]) -> list[str]:
    """Fields of the section that presim's configuration does not set by the plan."""
    own_names = ("stage", "overlap_comm")
    fields = []
    for name, value in settings.inner(_ZERO.rstrip(".")).items():
        if name in own_names or name.startswith(("offload_optimizer", "offload_param")):
            continue
        if value == "auto":
            value = sizes.get(name)
        if value is not None:
            whole_value = int(value) if isinstance(value, float) and value.is_integer() else value
            fields.append(f"{_ZERO}{name}={json.dumps(whole_value)}")
    return fields


def _other_fields(settings: Settings) -> list[str]:
    """Fields beside the section that change what is exchanged."""
    names = ("communication_data_type", "prescale_gradients", "gradient_predivide_factor", "sparse_gradients")
    return [
        f"{name}={json.dumps(value)}" for name in names if (value := settings.value(name)) not in (None, "auto", "none")
    ]


def _sizes_by_model(settings: Settings, stage: int, model: str | None) -> dict[str, int]:
    automatic_names = [name for name, value in settings.values.items() if name.startswith(_ZERO) and value == "auto"]
    path = config_file(model) if model and automatic_names else None
    if path is None:
        return {}
    hidden = decode_json(read_bytes(path, "name another model"), dict[str, Any]).get("hidden_size")
    if not isinstance(hidden, int):
        return {}
    sizes = {"reduce_bucket_size": hidden * hidden, "allgather_bucket_size": hidden * hidden}
    if stage == 3:
        sizes["stage3_prefetch_bucket_size"] = int(0.9 * hidden * hidden)
        sizes["stage3_param_persistence_threshold"] = 10 * hidden
    return sizes
