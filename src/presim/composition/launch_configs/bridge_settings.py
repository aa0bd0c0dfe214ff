"""Megatron-Bridge's YAML of its configuration as a plan; the model is the user's."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.settings import Settings
from presim.errors import InputError

_DEGREES = {
    "model.tensor_model_parallel_size": "tensor", "model.pipeline_model_parallel_size": "pipeline",
    "model.virtual_pipeline_model_parallel_size": "virtual", "model.context_parallel_size": "context",
    "model.expert_model_parallel_size": "expert", "train.micro_batch_size": "micro_batch",
    "train.global_batch_size": "global_batch",
}  # fmt: skip
_STYLES = {"p2p": "ring", "a2a": "ulysses", "all_gather": "all-gather"}
_PRECISIONS = {
    "bf16_mixed": "bf16", "bf16_with_fp8_delayed_scaling_mixed": "fp8-delayed", "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_fp8_current_scaling_mixed": "fp8-current", "bf16_with_nvfp4_mixed": "nvfp4",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8-block",
}  # fmt: skip
_PASSED = ("model.", "ddp.", "comm_overlap.", "mixed_precision.", "peft.", "optimizer.")  # sections of a step
_NO_EFFECT = (
    *("checkpoint.*", "logger.*", "dataset.*", "rng.*", "scheduler.*", "validation.*", "tokenizer.*", "profiling.*"),
    *("train.*", "dist.*", "optimizer.*lr*", "optimizer.weight_decay", "optimizer.adam_*", "straggler.*", "ft.*"),
    *("rerun_state_machine.*", "nvrx_straggler.*", "model.init_method_std"),
)
_ONLY_RUN = "is not composed; run the program under `presim run`"
_REFUSED = {
    "dist.use_megatron_fsdp": f"Megatron-FSDP {_ONLY_RUN}",
    "dist.use_torch_fsdp2": f"FSDP2 within Megatron {_ONLY_RUN}",
    "ddp.use_megatron_fsdp": f"Megatron-FSDP {_ONLY_RUN}", "model.freeze_language_model": f"it {_ONLY_RUN}",
    "train.rampup_batch_size": f"a growing batch {_ONLY_RUN}",
}  # fmt: skip


def is_bridge(values: Mapping[str, Any]) -> bool:
    """Whether a file's sections are those of Megatron-Bridge."""
    model = values.get("model")
    return isinstance(model, Mapping) and isinstance(values.get("train"), Mapping) and "base_model" not in values


def bridge_plan(
    values: Mapping[str, Any], origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    """The plan of a file, with its other fields as those of Bridge's configuration.

    ``model``: the user's. ``named_fields``: of the plan, by options.

    Raises:
        InputError: no model is named, or the file makes another step than presim's program for Bridge can show.
    """
    if model is None:
        raise InputError(f"{origin} has fields of Megatron-Bridge's, whose recipe names the model: name MODEL")
    settings = Settings(values, origin)
    settings.refuse(_REFUSED)
    if settings.inner("model.teacher"):
        raise InputError(f"{origin} has model.teacher: distillation {_ONLY_RUN}")
    if vision := [name for name in settings.values if name.startswith("model.") and "vision" in name]:
        raise InputError(f"{origin} has {vision[0]}: a vision encoder {_ONLY_RUN}")
    fields = {field: number for name, field in _DEGREES.items() if (number := settings.number(name)) is not None}
    sequence = settings.number("model.seq_length", "dataset.seq_length", "dataset.sequence_length")
    if sequence is None and "sequence" not in named_fields:
        raise InputError(f"{origin} has no model.seq_length, the tokens of a sample; give it with --seq")
    for name, option in (("train.micro_batch_size", "mbs"), ("train.global_batch_size", "global-batch")):
        if _DEGREES[name] not in (*fields, *named_fields):
            raise InputError(f"{origin} has no {name}, which its recipe sets; give it with --{option}")
    plan: dict[str, Any] = {**fields, **({"sequence": sequence} if sequence else {})}
    if (has_sequence := settings.value("model.sequence_parallel")) is not None:
        plan["sequence_parallel"] = bool(has_sequence) and fields.get("tensor", 1) > 1
    style = settings.text("model.cp_comm_type")
    if style is not None and fields.get("context", 1) > 1:
        if style not in _STYLES:
            raise InputError(f"{origin} has model.cp_comm_type {style}; presim has {', '.join(_STYLES)}")
        plan["context_style"] = _STYLES[style]
    is_sharded = settings.switch("ddp.use_distributed_optimizer", default=True)
    settings.value("optimizer.use_distributed_optimizer")
    plan["data_style"] = "zero1" if is_sharded else "ddp"
    plan["overlap"] = settings.switch("ddp.overlap_grad_reduce", "comm_overlap.overlap_grad_reduce", default=True)
    precision, overrides = _precision(settings), _overrides(settings)
    notes = [
        "Degrees that the file does not say are 1, and not those of its recipe.",
        *settings.unread_note(_NO_EFFECT),
    ]
    return LaunchedPlan(model, plan, precision, tuple(overrides), None, None, tuple(notes))


def _precision(settings: Settings) -> str:
    name = settings.text("mixed_precision") or "bf16_mixed"
    if name not in _PRECISIONS:
        raise InputError(f"{settings.origin} has mixed_precision {name}; presim has {', '.join(_PRECISIONS)}")
    return _PRECISIONS[name]


def _overrides(settings: Settings) -> list[str]:
    """Fields that nobody asked for and that change a step, as words of Bridge's overrides."""
    overrides = []
    for name, value in settings.values.items():
        is_step = name.startswith(_PASSED) or name == "peft"
        if name in settings.taken or not is_step or settings.has_no_effect(name, _NO_EFFECT):
            continue
        settings.taken.add(name)
        text = json.dumps(value, separators=(",", ":")) if isinstance(value, list | bool) else str(value)
        overrides.append(f"{name}={text.replace(chr(34), '') if isinstance(value, list) else text}")
    return overrides
