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


def accelerator_variables(settings: Mapping[str, str], *, is_distributed: bool) -> dict[str, str]:
    """The variables for one process; ``is_distributed``: the job has several processes."""
    variables = {"ACCELERATE_MIXED_PRECISION": settings.get("mixed_precision") or "no"}
    if settings.get("debug") == "true":
        variables["ACCELERATE_DEBUG_MODE"] = "true"
    if settings.get("enable_cpu_affinity") == "true":
        variables["ACCELERATE_CPU_AFFINITY"] = "1"
    if settings.get("mixed_precision") == "fp8":
        variables |= _fp8(settings)
    if settings.get("use_deepspeed") == "true":
        variables |= _deepspeed(settings)
    else:
        variables |= _dynamo(settings)
        variables["OMP_NUM_THREADS"] = settings.get("num_cpu_threads_per_process") or os.environ.get(
            "OMP_NUM_THREADS", "1"
        )
    if not is_distributed:
        variables["ACCELERATE_USE_CPU"] = "False"
    if settings.get("use_fsdp") == "true":
        variables |= {"ACCELERATE_USE_FSDP": "true"} | _fsdp(settings)
    if settings.get("use_megatron_lm") == "true":
        variables |= {"ACCELERATE_USE_MEGATRON_LM": "true"} | _prefixed(
            settings, "megatron_lm_", "MEGATRON_LM_", _MEGATRON
        )
    if settings.get("use_parallelism_config") == "true":
        variables |= _parallelism(settings)
    return variables


def _prefixed(
    settings: Mapping[str, str], prefix: str, variable: str, defaults: Mapping[str, str | None]
) -> dict[str, str]:
    values = {name: settings.get(prefix + name, default) for name, default in defaults.items()}
    return {variable + name.upper(): value for name, value in values.items() if value is not None}


def _dynamo(settings: Mapping[str, str]) -> dict[str, str]:
    variables = {
        "ACCELERATE_DYNAMO_BACKEND": (settings.get("dynamo_backend") or "no").upper(),
        "ACCELERATE_DYNAMO_MODE": settings.get("dynamo_mode") or "default",
    }
    for name in ("fullgraph", "dynamic", "regional_compilation"):
        variables[f"ACCELERATE_DYNAMO_USE_{name.upper()}"] = str(settings.get(f"dynamo_use_{name}") == "true")
    return variables


def _fsdp(settings: Mapping[str, str]) -> dict[str, str]:
    variables = _prefixed(settings, "fsdp_", "FSDP_", _FSDP)
    if "FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP" in variables:
        variables["FSDP_TRANSFORMER_CLS_TO_WRAP"] = variables.pop("FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP")
    return variables | {f"FSDP_{name.upper()}": variables[f"FSDP_{name.upper()}"].lower() for name in _LOWER}


def _deepspeed(settings: Mapping[str, str]) -> dict[str, str]:
    fields = ",".join(name for name in _DEEPSPEED if name in settings)
    variables = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_CONFIG_DS_FIELDS": fields.lower()}
    for name, variable in _DEEPSPEED.items():
        if settings.get(name):
            variables[f"ACCELERATE_{variable}"] = settings[name] if name in _AS_WRITTEN else settings[name].lower()
    return variables


def _fp8(settings: Mapping[str, str]) -> dict[str, str]:
    variables = {f"ACCELERATE_{name.upper()}": value for name, value in settings.items() if name.startswith("fp8_")}
    override = variables.pop("ACCELERATE_FP8_OVERRIDE_LINEAR_PRECISION", "")
    for name, value in zip(("FPROP", "DGRAD", "WGRAD"), override.split(",")):
        if value:
            variables[f"ACCELERATE_FP8_OVERRIDE_{name}"] = str(value.strip().lower() in ("true", "1", "yes"))
    return variables


def _parallelism(settings: Mapping[str, str]) -> dict[str, str]:
    prefix, variable_prefix = "parallelism_config_", "PARALLELISM_CONFIG_"
    variables = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"} | _prefixed(
        settings, prefix, variable_prefix, _PARALLELISM
    )
    if int(variables[f"{variable_prefix}CP_SIZE"]) > 1:
        variables |= _prefixed(settings, prefix, variable_prefix, {"cp_comm_strategy": "allgather"})
    if int(variables[f"{variable_prefix}SP_SIZE"]) > 1:
        defaults = {"sp_seq_length": "None", "sp_seq_length_is_variable": "True", "sp_attn_implementation": "sdpa"}
        variables |= _prefixed(settings, prefix, variable_prefix, defaults)
    return variables
