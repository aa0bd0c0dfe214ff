"""The file that ``accelerate config`` writes, as settings named like the command's options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from presim.capture.launchers.launcher_options import check_slip
from presim.errors import InputError
from presim.system.files import FormatError, decode_settings_json, decode_yaml, read_text

# Sections whose keys may omit the section's prefix.
_PREFIXES = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
_SECTIONS = (*_PREFIXES, "deepspeed_config", "megatron_lm_config", "parallelism_config", "mpirun_config")
_MODES = {  # distributed_type -> equivalent option
    "NO": "",
    "MULTI_GPU": "multi_gpu",
    "FSDP": "use_fsdp",
    "DEEPSPEED": "use_deepspeed",
    "MEGATRON_LM": "use_megatron_lm",
    "MULTI_CPU": "cpu",
    "XLA": "tpu",
    "TPU": "tpu",
}
_KNOWN = {
    *(
        "compute_environment",
        "distributed_type",
        "mixed_precision",
        "use_cpu",
        "debug",
        "num_processes",
        "machine_rank",
    ),
    *("num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network", "fp16"),
    *("main_training_function", "enable_cpu_affinity", "downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster"),
    *("tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env", "dynamo_backend", "num_cpu_threads_per_process"),
}


def read_config(path: str | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Read the settings of a file, or of accelerate's default file; returns them with notes on unknown keys.

    Raises:
        InputError: the file is missing or invalid.
    """
    file = Path(path) if path else _default()
    if file is None:
        return {}, ()
    described = _load(file)
    if described.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        raise InputError(
            f"{file}: compute_environment {described['compute_environment']} is not supported; use LOCAL_MACHINE"
        )
    unknown = sorted(set(described) - _KNOWN - set(_SECTIONS))
    for name in unknown:
        check_slip(str(file), "setting", name, (*_KNOWN, *_SECTIONS))
    notes = (f"presim ignored unknown settings in {file}: {', '.join(unknown)}.",) if unknown else ()
    return _settings(described, file), notes


def _default() -> Path | None:
    """The default file of ``accelerate config``: under HF_HOME, else in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(os.environ.get("HF_HOME", cache / "huggingface")) / "accelerate"
    return next(
        (folder / name for name in ("default_config.json", "default_config.yaml") if (folder / name).is_file()), None
    )


def _load(file: Path) -> dict[str, Any]:
    text = read_text(file, "give accelerate launch a config file of UTF-8 text")
    try:
        config = decode_settings_json(text) if file.suffix == ".json" else decode_yaml(text)
    except FormatError as error:
        raise InputError(f"{file} is not valid YAML or JSON: {error}") from error
    if not isinstance(config, dict) or "distributed_type" not in config:
        raise InputError(f"{file} has no distributed_type; write it with `accelerate config`")
    for section in (config, *(config[name] for name in _SECTIONS if config.get(name))):
        if not isinstance(section, dict) or not all(isinstance(key, str) for key in section):
            raise InputError(f"{file} has settings without a name; write it with `accelerate config`")
    return config


def _settings(described: Mapping[str, Any], file: Path) -> dict[str, str]:
    kind = str(described["distributed_type"]).removeprefix("DistributedType.")
    if kind not in _MODES:
        raise InputError(f"{file}: distributed_type {kind} is not one of {', '.join(_MODES)}; correct it")
    settings = {_MODES[kind]: "true"} if _MODES[kind] else {}
    for key, value in described.items():
        if key in _SECTIONS:
            prefix = _PREFIXES.get(key, "")
            for inner, content in (value or {}).items():
                settings[inner if inner.startswith(prefix) else prefix + inner] = _text(content)
        elif value is not None:
            settings[key] = _text(value)
    if described.get("parallelism_config"):
        settings["use_parallelism_config"] = "true"
    if described.get("use_cpu"):
        settings["cpu"] = "true"
    return settings


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
