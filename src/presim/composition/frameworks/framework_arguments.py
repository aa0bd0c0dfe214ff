"""A framework's own options beside a plan: they are added to the files and the command that presim writes for it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.composition.frameworks.adapter_arguments import check_adapters, split_adapters
from presim.composition.launch_files.launch_job import Files
from presim.composition.launch_scripts.megatron_plan import option_fields, quoted
from presim.errors import InputError
from presim.system.files import (
    FormatError,
    decode_foreign_json,
    decode_json,
    decode_settings_json,
    decode_yaml,
    names_file,
    read_bytes,
    read_text,
)

_CONFIG = "ds_config.json"
_SYNC_EACH = "--sync_each_batch"
_FIELD = re.compile(r"[A-Za-z_][\w.]*=")  # of Bridge's configuration, with a value
# What a plan sets: what is composed from a capture would not know of another value.
_TORCHTITAN_PLAN = (
    *("--training.local_batch_size", "--training.global_batch_size", "--training.seq_len", "--training.steps"),
    *("--module", "--config", "--parallelism."),
)
_ACCELERATE_PLAN = (
    *("--config_file", "--num_processes", "--num_machines", "--gradient_accumulation_steps"),
    "--parallelism_config_",
)
_DEEPSPEED_PLAN = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def _check_beside_plan(names: Sequence[str], plan_names: Collection[str]) -> None:
    for name in names:
        if any(name == other or (other[-1] in "._" and name.startswith(other)) for other in plan_names):
            raise InputError(
                f"--framework-args sets {name}, which follows from the plan; use the plan's options, as --mbs and "
                "--global-batch"
            )


def _option_names(arguments: Sequence[str]) -> list[str]:
    return [word.partition("=")[0].replace("-", "_").replace("__", "--", 1) for word in arguments if word[:2] == "--"]


def torchtitan_files(files: Files, arguments: Sequence[str]) -> Files:
    """torchtitan's files and command with further options of its trainer, as ``--compile.enable``.

    Raises:
        InputError: these are no options, or follow from the plan.
    """
    if arguments and not arguments[0].startswith("--"):
        raise InputError(
            f"--framework-args takes options of torchtitan's trainer, as --compile.enable; got {arguments[0]!r}"
        )
    _check_beside_plan(_option_names(arguments), _TORCHTITAN_PLAN)
    return dataclasses.replace(files, command=[*files.command, *arguments])


def megatron_fields(arguments: Sequence[str], plan_names: Collection[str], precision: str) -> tuple[str, ...]:
    """Fields of Megatron-Bridge's configuration as ``model.name=value``, those of YAML files among the arguments too.

    Options of Megatron-LM, as ``--tp-comm-overlap``, become the fields that mean the same. What a file says of
    ``plan_names`` gives way to the plan.

    Raises:
        InputError: these are no fields, or follow from the plan.
    """
    fields: list[str] = []
    options: list[str] = []  # of Megatron-LM, with their values
    for argument in arguments:
        if argument.startswith("--"):
            options.append(argument)
        elif _FIELD.match(argument):
            _check_beside_plan([argument.partition("=")[0]], plan_names)
            fields.append(argument)
        elif names_file(argument):
            fields += (field for field in _yaml_fields(Path(argument)) if field.partition("=")[0] not in plan_names)
        elif options:
            options.append(argument)
        else:
            raise InputError(
                "--framework-args takes fields of Megatron-Bridge's configuration, as "
                "model.recompute_granularity=selective, a YAML file of them, or options of Megatron-LM, as "
                f"--tp-comm-overlap; got {argument!r}"
            )
    return (*option_fields(options, precision), *map(quoted, fields))


def _yaml_fields(path: Path) -> Iterator[str]:
    try:
        settings = decode_yaml(read_text(path, "name another configuration of Megatron-Bridge's"))
    except FormatError as error:
        raise InputError(f"{path} is no configuration of Megatron-Bridge's: {error}; name another file") from error
    if not isinstance(settings, dict):
        raise InputError(f"{path} is no configuration of Megatron-Bridge's: it has no fields; name another file")
    return _leaves("", settings)


def _leaves(prefix: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """Fields without names of classes, and without those that are not set."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}{name}.", value)
        elif value is not None and not str(name).startswith("_"):
            text = (
                json.dumps(value, default=str, separators=(",", ":")) if isinstance(value, list | bool) else str(value)
            )
            text = text.replace('"', "") if isinstance(value, list) else text  # as Bridge's overrides write lists
            yield f"{prefix}{name}={text}"


def accelerate_files(files: Files, arguments: Sequence[str]) -> Files:
    """accelerate's files and command with further options of `accelerate launch`, which precede those of its file.

    Options of adapters, with the names that TRL gives them (``--lora_r 16 --load_in_4bit``), are the program's, and so
    is ``--sync_each_batch`` of accelerate's gradient accumulation.

    Raises:
        InputError: these are no options, or follow from the plan; adapters need PEFT, or cannot be sharded.
    """
    accumulation = [word for word in arguments if word == _SYNC_EACH]
    arguments, adapters = split_adapters([word for word in arguments if word != _SYNC_EACH])
    check_adapters(adapters, "FSDP2" if "distributed_type: FSDP" in files.files["accelerate.yaml"] else "")
    if arguments and not arguments[0].startswith("--"):
        raise InputError(
            "--framework-args takes options of `accelerate launch`, as --fsdp_reshard_after_forward false; got "
            f"{arguments[0]!r}"
        )
    _check_beside_plan(_option_names(arguments), _ACCELERATE_PLAN)
    program = next(position for position, word in enumerate(files.command) if word.endswith(".py"))
    command = [*files.command[:program], *arguments, *files.command[program:], *accumulation, *adapters]
    return dataclasses.replace(files, command=command)


def deepspeed_files(files: Files, arguments: Sequence[str]) -> Files:
    """DeepSpeed's files with further fields of its configuration, or all fields of a JSON file of the user's.

    Sizes of batches in such a file give way to the plan's, and so does what it leaves to be set ("auto"). Options of
    LoRA, as ``--lora_r 16``, are the program's.

    Raises:
        InputError: these are no fields, or follow from the plan; adapters need PEFT, or cannot be sharded.
    """
    arguments, adapters = split_adapters(arguments)
    check_adapters(adapters, "DeepSpeed")
    settings = decode_json(files.files[_CONFIG].encode(), dict[str, Any])
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if separator:
            _check_beside_plan([name], _DEEPSPEED_PLAN)
            _set_field(settings, name, _value(value))
        elif names_file(argument):
            _merge(settings, _read_settings(Path(argument)))
        else:
            raise InputError(
                "--framework-args takes fields of DeepSpeed's configuration, as zero_optimization.stage=2, or a JSON "
                f"file of them; got {argument!r}"
            )
    config_text = json.dumps(settings, indent=1) + "\n"
    return dataclasses.replace(files, files={**files.files, _CONFIG: config_text}, command=[*files.command, *adapters])


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = decode_settings_json(read_bytes(path, "name another configuration of DeepSpeed's"))
    except FormatError as error:
        raise InputError(f"{path} is no configuration of DeepSpeed's: {error}; name another file") from error
    if not isinstance(settings, dict):
        raise InputError(f"{path} is no configuration of DeepSpeed's: it is not a JSON object; name another file")
    return _without_automatic({name: value for name, value in settings.items() if name not in _DEEPSPEED_PLAN})


def _without_automatic(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Fields without those, at any depth, that Hugging Face's trainer would set."""
    return {
        name: _without_automatic(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if value != "auto"
    }


def _merge(settings: dict[str, Any], added_settings: Mapping[str, Any]) -> None:
    for name, value in added_settings.items():
        inner = settings.get(name)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            _merge(inner, value)
        else:
            settings[name] = value


def _set_field(settings: dict[str, Any], name: str, value: object) -> None:
    *outer_names, last = name.split(".")
    for outer in outer_names:
        settings = settings.setdefault(outer, {})
        if not isinstance(settings, dict):
            raise InputError(f"DeepSpeed's {outer} is a value, so there is no field {name}; correct --framework-args")
    settings[last] = value


def _value(text: str) -> object:
    try:
        return decode_foreign_json(text.encode())
    except FormatError:
        return text
