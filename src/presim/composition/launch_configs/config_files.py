"""Which trainer a configuration file is of, and the plan that it makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.composition.launch_configs.accelerate_settings import accelerate_sharding
from presim.composition.launch_configs.axolotl_settings import axolotl_plan
from presim.composition.launch_configs.bridge_settings import bridge_plan, is_bridge
from presim.composition.launch_configs.deepspeed_settings import deepspeed_sharding
from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.python_settings import python_settings
from presim.composition.launch_configs.settings import read_settings
from presim.composition.launch_configs.sharding import Sharding
from presim.composition.launch_configs.torchtitan_settings import torchtitan_plan
from presim.composition.launch_configs.trainer_settings import (
    LLAMA_FACTORY,
    LLAMA_FACTORY_V1,
    TRAINER,
    TRL,
    Defaults,
    trainer_plan,
)
from presim.errors import InputError
from presim.system.files import read_text

SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".py")
_LLAMA_FACTORY_KEYS = ("finetuning_type", "cutoff_len", "dataset_dir")
_TRL_KEYS = ("max_seq_length", "max_length", "dataset_mixer", "dataset_name", "packing", "dataset_text_field")
_TRAINER_KEYS = ("model_name_or_path", "per_device_train_batch_size", "model_id")


def read_config_file(
    path: Path, words: Sequence[str], model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    """The plan of a trainer's configuration. ``words``: options that follow it, or a name in a file of Python.

    Raises:
        InputError: it is of no trainer that presim reads, or its plan cannot be read.
    """
    if path.suffix == ".py":
        text = read_text(path, "name a configuration")
        if "torchtitan" not in text:
            raise InputError(_python_refusal(path.name, text))
        values = python_settings(text, path, words[0] if words and not words[0].startswith("-") else None)
        return torchtitan_plan(with_options(values, words), path.name, model, named_fields)
    values = with_options(read_settings(path, "configuration"), words)
    return plan_of_settings(values, path, model, named_fields, {}, None)


def plan_of_settings(
    values: Mapping[str, Any],
    path: Path,
    model: str | None,
    named_fields: Collection[str],
    arguments: Mapping[str, Any],
    launcher: Sharding | None,
) -> LaunchedPlan:
    """The plan of a file's settings with a command line's ``arguments`` before them, started by ``launcher``.

    Raises:
        InputError: the settings are of no trainer that presim reads, or make no plan.
    """
    values = {**values, **arguments}
    origin, folder = path.name, path.parent
    if "base_model" in values:
        return axolotl_plan(values, folder, origin, model, named_fields)
    if path.suffix == ".toml" or ("training" in values and "job" in values):
        if "training" not in values:
            raise InputError(f"{origin} has no section [training] of torchtitan's; a plan of presim's follows --plan")
        return torchtitan_plan(values, origin, model, named_fields)
    if "distributed_type" in values or "compute_environment" in values:
        return plan_of_launcher(accelerate_sharding(values, model, folder, origin), model, origin)
    if "zero_optimization" in values or "train_micro_batch_size_per_gpu" in values:
        return plan_of_launcher(deepspeed_sharding(values, model, origin), model, origin)
    defaults = defaults_of(values)
    if defaults is not None:
        return trainer_plan(values, launcher, defaults, folder, origin, model, named_fields)
    if is_bridge(values):
        return bridge_plan(values, origin, model, named_fields)
    raise InputError(
        f"{origin} is no configuration of torchtitan, accelerate, DeepSpeed, axolotl, LLaMA-Factory or Hugging Face's "
        "trainers; name MODEL and give its plan as options"
    )


def defaults_of(values: Mapping[str, Any]) -> Defaults | None:
    """Whose defaults hold for a trainer's arguments; None: they are of no trainer that presim reads."""
    if "dist_config" in values or "model_class" in values:
        return LLAMA_FACTORY_V1
    if any(name in values for name in _LLAMA_FACTORY_KEYS):
        return LLAMA_FACTORY
    if any(name in values for name in _TRAINER_KEYS):
        return TRL if any(name in values for name in _TRL_KEYS) else TRAINER
    return None


def plan_of_launcher(sharding: Sharding, model: str | None, origin: str) -> LaunchedPlan:
    """The plan of a launcher's configuration, which trains whatever model the user names.

    Raises:
        InputError: none is named, or it trains in fp32.
    """
    if model is None:
        raise InputError(
            f"{origin} says how to train, and not what: name MODEL before --from, and give --seq and --mbs"
        )
    notes = list(sharding.notes)
    if sharding.number_format == "no":
        raise InputError(f"{origin} trains in fp32 (mixed_precision: no), which presim's programs do not; use bf16")
    if sharding.number_format == "fp16":
        notes.append("The launch's fp16 is priced as bf16, without its scaled loss.")
    precision = "fp8-current" if sharding.number_format == "fp8" else "bf16"
    fields = dict(sharding.fields)
    batches = None if "global_batch" in fields else sharding.micro_batches
    return LaunchedPlan(
        model, fields, precision, sharding.overrides, sharding.nodes, None, tuple(notes), sharding.framework,
        sharding.world_size, batches, sharding.copies,
    )  # fmt: skip


def with_options(values: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Settings with those of ``--name value``, ``--outer.inner=value`` or ``name=value`` words over them."""
    changed = {**values}
    for name, value in options_of(words).items():
        *outer_names, last = name.split(".")
        section = changed
        for outer in outer_names:
            inner = section.get(outer)
            section[outer] = dict(inner) if isinstance(inner, Mapping) else {}
            section = section[outer]
        section[last] = value
    return changed


def options_of(words: Sequence[str]) -> dict[str, Any]:
    """Values by option; a switch is true, and an option with several values has a list."""
    options: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            options[name] = value if equals else True
            name = "" if equals else name
        elif name:
            before = options[name]
            options[name] = word if before is True else [*(before if isinstance(before, list) else [before]), word]
        elif "=" in word and not word.startswith("-"):
            key, _, value = word.partition("=")
            options[key.lstrip("+")] = value
    return options


def _python_refusal(origin: str, text: str) -> str:
    if "megatron.bridge" in text or "nemo" in text.lower():
        return (
            f"{origin} is a recipe in Python of Megatron-Bridge or NeMo, which is not run: name MODEL with its plan "
            "(--tp, --pp, --mbs, --seq, --global-batch, --precision), and the recipe's fields with --framework-args"
        )
    return f"{origin} is a program; run it under `presim run`"
