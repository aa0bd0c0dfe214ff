"""Environment variables that ``accelerate launch`` sets for Accelerator (accelerate/utils/launch.py, 1.15)."""

from __future__ import annotations

import os
from collections.abc import Mapping

# Settings with the defaults of the command's options; None: set the variable only if the option is given.
_FSDP = {
    "version": "1",
    "sharding_strategy": "FULL_SHARD",
    "reshard_after_forward": "true",
    "offload_params": "false",
    "min_num_params": "100000000",
    "auto_wrap_policy": None,
    "transformer_layer_cls_to_wrap": None,
    "backward_prefetch": None,
    "state_dict_type": None,
    "forward_prefetch": "false",
    "use_orig_params": "true",
    "cpu_ram_efficient_loading": "true",
    "sync_module_states": "true",
    "activation_checkpointing": "false",
    "activation_checkpointing_offload": "false",
    "ignored_modules": None,
}
_LOWER = {  # FSDP settings written in lower case
    *("reshard_after_forward", "offload_params", "forward_prefetch", "use_orig_params", "cpu_ram_efficient_loading"),
    *("sync_module_states", "activation_checkpointing", "activation_checkpointing_offload"),
}
_MEGATRON = {
    "tp_degree": "1",
    "pp_degree": "1",
    "gradient_clipping": "1.0",
    "use_custom_fsdp": "False",
    "no_load_optim": "False",
    "eod_mask_loss": "False",
    "no_save_optim": "False",
    "optimizer_cpu_offload": "False",
    "use_precision_aware_optimizer": "False",
    "overlap_cpu_optimizer_d2h_h2d": "False",
    "decoder_last_pipeline_num_layers": None,
    "num_micro_batches": None,
    "sequence_parallelism": None,
    "recompute_activations": None,
    "use_distributed_optimizer": None,
    "recompute_granularity": None,
    "recompute_method": None,
    "recompute_num_layers": None,
    "attention_backend": None,
    "expert_model_parallel_size": None,
    "context_parallel_size": None,
    "attention_dropout": None,
    "hidden_dropout": None,
    "attention_softmax_in_fp32": None,
    "expert_tensor_parallel_size": None,
    "calculate_per_token_loss": None,
    "use_rotary_position_embeddings": None,
}
_DEEPSPEED = {  # setting -> variable without ACCELERATE_
    "zero_stage": "DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "GRADIENT_CLIPPING",
    "offload_optimizer_device": "DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "DEEPSPEED_CONFIG_FILE",
    "deepspeed_moe_layer_cls_names": "DEEPSPEED_MOE_LAYER_CLS_NAMES",
}
_AS_WRITTEN = {"zero_stage", "gradient_accumulation_steps", "deepspeed_config_file", "deepspeed_moe_layer_cls_names"}
_PARALLELISM = {
    "dp_replicate_size": "1",
    "dp_shard_size": "1",
    "tp_size": "1",
    "cp_size": "1",
    "cp_backend": "torch",
    "sp_size": "1",
    "sp_backend": "deepspeed",
}


def accelerator_variables(settings: Mapping[str, str], *, several: bool) -> dict[str, str]:
    """The variables for one process; ``several``: the job is distributed."""
    found = {"ACCELERATE_MIXED_PRECISION": settings.get("mixed_precision") or "no"}
    if settings.get("debug") == "true":
        found["ACCELERATE_DEBUG_MODE"] = "true"
    if settings.get("enable_cpu_affinity") == "true":
        found["ACCELERATE_CPU_AFFINITY"] = "1"
    if settings.get("mixed_precision") == "fp8":
        found |= _fp8(settings)
    if settings.get("use_deepspeed") == "true":
        found |= _deepspeed(settings)
    else:
        found |= _dynamo(settings)
        found["OMP_NUM_THREADS"] = settings.get("num_cpu_threads_per_process") or os.environ.get("OMP_NUM_THREADS", "1")
    if not several:
        found["ACCELERATE_USE_CPU"] = "False"
    if settings.get("use_fsdp") == "true":
        found |= {"ACCELERATE_USE_FSDP": "true"} | _fsdp(settings)
    if settings.get("use_megatron_lm") == "true":
        found |= {"ACCELERATE_USE_MEGATRON_LM": "true"} | _prefixed(settings, "megatron_lm_", "MEGATRON_LM_", _MEGATRON)
    if settings.get("use_parallelism_config") == "true":
        found |= _parallelism(settings)
    return found


def _prefixed(
    settings: Mapping[str, str], prefix: str, variable: str, defaults: Mapping[str, str | None]
) -> dict[str, str]:
    values = {name: settings.get(prefix + name, default) for name, default in defaults.items()}
    return {variable + name.upper(): value for name, value in values.items() if value is not None}


def _dynamo(settings: Mapping[str, str]) -> dict[str, str]:
    found = {
        "ACCELERATE_DYNAMO_BACKEND": (settings.get("dynamo_backend") or "no").upper(),
        "ACCELERATE_DYNAMO_MODE": settings.get("dynamo_mode") or "default",
    }
    for name in ("fullgraph", "dynamic", "regional_compilation"):
        found[f"ACCELERATE_DYNAMO_USE_{name.upper()}"] = str(settings.get(f"dynamo_use_{name}") == "true")
    return found


def _fsdp(settings: Mapping[str, str]) -> dict[str, str]:
    found = _prefixed(settings, "fsdp_", "FSDP_", _FSDP)
    if "FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP" in found:
        found["FSDP_TRANSFORMER_CLS_TO_WRAP"] = found.pop("FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP")
    return found | {f"FSDP_{name.upper()}": found[f"FSDP_{name.upper()}"].lower() for name in _LOWER}


def _deepspeed(settings: Mapping[str, str]) -> dict[str, str]:
    fields = ",".join(name for name in _DEEPSPEED if name in settings)
    found = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_CONFIG_DS_FIELDS": fields.lower()}
    for name, variable in _DEEPSPEED.items():
        if settings.get(name):
            found[f"ACCELERATE_{variable}"] = settings[name] if name in _AS_WRITTEN else settings[name].lower()
    return found


def _fp8(settings: Mapping[str, str]) -> dict[str, str]:
    found = {f"ACCELERATE_{name.upper()}": value for name, value in settings.items() if name.startswith("fp8_")}
    override = found.pop("ACCELERATE_FP8_OVERRIDE_LINEAR_PRECISION", "")
    for name, value in zip(("FPROP", "DGRAD", "WGRAD"), override.split(",")):
        if value:
            found[f"ACCELERATE_FP8_OVERRIDE_{name}"] = str(value.strip().lower() in ("true", "1", "yes"))
    return found


def _parallelism(settings: Mapping[str, str]) -> dict[str, str]:
    prefix, variable = "parallelism_config_", "PARALLELISM_CONFIG_"
    found = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"} | _prefixed(settings, prefix, variable, _PARALLELISM)
    if int(found[f"{variable}CP_SIZE"]) > 1:
        found |= _prefixed(settings, prefix, variable, {"cp_comm_strategy": "allgather"})
    if int(found[f"{variable}SP_SIZE"]) > 1:
        more = {"sp_seq_length": "None", "sp_seq_length_is_variable": "True", "sp_attn_implementation": "sdpa"}
        found |= _prefixed(settings, prefix, variable, more)
    return found
