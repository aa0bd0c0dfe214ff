"""Commands of accelerate, DeepSpeed, torchrun, torchtitan, axolotl, LLaMA-Factory and TRL as models with plans."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from presim.composition.launch_configs.accelerate_settings import accelerate_sharding
from presim.composition.launch_configs.config_files import (
    defaults_of,
    options_of,
    plan_of_settings,
    with_options,
)
from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.settings import read_settings
from presim.composition.launch_configs.sharding import DATA_PARALLEL, Sharding
from presim.composition.launch_configs.torchtitan_settings import torchtitan_plan
from presim.composition.launch_configs.trainer_settings import LLAMA_FACTORY, TRAINER, TRL, trainer_plan
from presim.errors import InputError

LAUNCHERS = ("accelerate", "deepspeed", "torchrun", "axolotl", "llamafactory-cli", "llamafactory", "trl", "swift")
_MODULES = ("torchtitan.train", "axolotl.cli.train", "torch.distributed.run", "torch.distributed.launch")
_TRL = re.compile(r"(^|/)trl/|(^|/)(run_)?sft\.py$")  # TRL's own script, and alignment-handbook's
_OTHER_STEPS = re.compile("dpo|kto|grpo|orpo|cpo|ppo|rloo|reward|gkd|bco|xpo|nash")
_ACCELERATE_NAMES = {"num_processes", "num_machines", "mixed_precision", "gradient_accumulation_steps"}


def plan_of_command(
    words: Sequence[str], folder: Path, origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan | None:
    """The plan of a command; None: it starts no trainer that is read here. ``folder``: of files that it names.

    Raises:
        InputError: it makes another step than presim's programs can show, or says too little.
    """
    start = next((index for index, word in enumerate(words) if _base(word) in LAUNCHERS or word in _MODULES), None)
    name = _base(words[start]) if start is not None else ""
    if any(word == "torchtitan.train" or word.endswith("torchtitan/train.py") for word in words) or any(
        re.match(r"--job\.config[_-]file", word) for word in words
    ):
        return _torchtitan(words, folder, origin, model, named_fields)
    if name in ("axolotl", "axolotl.cli.train") or "axolotl.cli.train" in words:
        return _with_file(words, folder, origin, "axolotl", model, named_fields)
    if start is not None and name in ("trl", "llamafactory", "llamafactory-cli", "swift"):
        return _own_command(name, words[start + 1 :], folder, origin, model, named_fields)
    return _launched_program(words, start, folder, origin, model, named_fields)


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _torchtitan(
    words: Sequence[str], folder: Path, origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    start = max(index for index, word in enumerate(words) if "train" in word or word.startswith("--job.config"))
    first = next((index for index, word in enumerate(words) if word.startswith("--job.config")), start + 1)
    options = options_of(words[min(first, start + 1) :])
    file = options.pop("job.config_file", None)
    if file is None:
        raise InputError(
            f"{origin} starts torchtitan by --module and --config, whose Python is not run here: name the file with "
            "its configuration, as --from 'config_registry.py llama3_8b', or run the command under `presim run`"
        )
    path = _path(str(file), folder, "torchtitan")
    option_words = [f"--{name}={value}" for name, value in options.items()]
    values = with_options(read_settings(path, "configuration of torchtitan"), option_words)
    return _sized(torchtitan_plan(values, path.name, model, named_fields), _launcher_options(words))


def _with_file(
    words: Sequence[str], folder: Path, origin: str, program: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    """A command with a YAML file, and options over it."""
    file = next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    if file is None:
        raise InputError(f"{origin} starts {program} without a YAML file; name it")
    path = _path(file, folder, program)
    arguments = options_of(words[list(words).index(file) + 1 :])
    values = read_settings(path, f"configuration of {program}")
    plan = plan_of_settings(values, path, model, named_fields, arguments, None)
    return _sized(plan, _launcher_options(words[: list(words).index(file)]))


def _own_command(
    name: str, words: Sequence[str], folder: Path, origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    """``trl sft``, ``llamafactory-cli train``."""
    method = words[0] if words else ""
    if name == "swift" or method not in ("sft", "train"):
        raise InputError(
            f"{origin} starts {name} {method}: presim reads `trl sft` and `llamafactory-cli train`; run it under "
            "`presim run`, and steps of reinforcement learning with `presim rl`"
        )
    options = options_of(words[1:])
    file = options.pop("config", None) or next((word for word in words[1:] if word.endswith((".yaml", ".yml"))), None)
    values: dict[str, Any] = {}
    if file is not None:
        path = _path(str(file), folder, name)
        values = read_settings(path, f"configuration of {name}")
        folder, origin = path.parent, path.name
    values = {**values, **options}
    launcher = dataclasses.replace(DATA_PARALLEL, world_size=_number(values.pop("num_processes", None)))
    if (accelerate_file := values.pop("accelerate_config", None)) is not None:
        configuration = read_settings(_path(str(accelerate_file), folder, name), "configuration of accelerate")
        launcher = accelerate_sharding(configuration, model, folder, str(accelerate_file), no_own_number_format=True)
    defaults = TRL if name == "trl" else LLAMA_FACTORY
    return trainer_plan(values, launcher, defaults, folder, origin, model, named_fields)


def _launched_program(
    words: Sequence[str], start: int | None, folder: Path, origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan | None:
    """A program of Hugging Face's trainers, behind its launcher."""
    program = next((index for index, word in enumerate(words) if index > (start or 0) and word.endswith(".py")), None)
    if program is None and start is not None and words[start + 1 : start + 2]:
        program = next((index + 1 for index, word in enumerate(words) if word in ("-m", "--module")), None)
    if program is None:
        return None
    arguments = options_of(words[program + 1 :])
    file = next((word for word in words[program + 1 :] if word.endswith((".yaml", ".yml"))), None)
    file = str(arguments.pop("config", None) or file or "")
    if not file and defaults_of(arguments) is None and not {"deepspeed", "deepspeed_config"} & arguments.keys():
        return None
    launcher_words = [] if start is None else list(words[start + 1 : program])
    is_accelerate = start is not None and _base(words[start]) == "accelerate"
    if is_accelerate:
        launcher = _accelerate(launcher_words, model, folder)
    else:
        sizes = _launcher_options(words[:program])
        launcher = dataclasses.replace(DATA_PARALLEL, nodes=sizes["nodes"], world_size=sizes["world_size"])
    if match := _OTHER_STEPS.search(_base(words[program])):
        raise InputError(
            f"{origin} starts {_base(words[program])}: presim composes steps of pre-training and not of {match[0]}; "
            "run the program under `presim run`, and see `presim rl`"
        )
    if not file:
        defaults = defaults_of(arguments) or TRAINER
        defaults = TRAINER if defaults is TRL and not _TRL.search(words[program]) else defaults
        return trainer_plan(arguments, launcher, defaults, folder, origin, model, named_fields)
    path = _path(file, folder, words[program])
    values = read_settings(path, "configuration of a trainer")
    return plan_of_settings(values, path, model, named_fields, arguments, launcher)


def _accelerate(words: Sequence[str], model: str | None, folder: Path) -> Sharding:
    """``accelerate launch``, by its file and its options."""
    options = options_of([word for word in words if word != "launch"])
    values: dict[str, Any] = {}
    origin = "accelerate launch"
    if (file := options.pop("config_file", None)) is not None:
        path = _path(str(file), folder, "accelerate")
        values, origin = read_settings(path, "configuration of accelerate"), path.name
    for name, value in options.items():
        if name.startswith("fsdp_"):
            values["fsdp_config"] = {**values.get("fsdp_config", {}), name: value}
        elif name.startswith(("zero", "deepspeed_config_file", "offload_")):
            values["deepspeed_config"] = {**values.get("deepspeed_config", {}), name: value}
        elif name in _ACCELERATE_NAMES:
            values[name] = value
    if options.get("use_deepspeed"):
        values["distributed_type"] = "DEEPSPEED"
    elif options.get("use_fsdp"):
        values["distributed_type"] = "FSDP"
    values.setdefault("distributed_type", "MULTI_GPU")
    return accelerate_sharding(values, model, folder, origin, no_own_number_format=True)


def _launcher_options(words: Sequence[str]) -> dict[str, int | None]:
    """Nodes and GPUs of a launcher's options."""
    options = options_of([re.sub(r"^-([A-Za-z])$", r"--\1", word) for word in words])
    nodes = _number(options.get("nnodes") or options.get("num_nodes") or options.get("num_machines"))
    per_node = _number(options.get("nproc_per_node") or options.get("num_gpus"))
    if isinstance(include := options.get("include"), str) and ":" in include:
        per_node, nodes = len(include.partition(":")[2].split(",")), nodes or 1
    world_size = _number(options.get("num_processes"))
    if world_size is None and per_node is not None and (nodes is not None or "nnodes" not in options):
        world_size = per_node * (nodes or 1)
    return {"nodes": nodes, "world_size": world_size}


def _number(value: object) -> int | None:
    value = value[0] if isinstance(value, list) and value else value
    match = re.fullmatch(r"(?:\d+:)?(\d+)", str(value))
    return int(match[1]) if match else None


def _sized(plan: LaunchedPlan, sizes: dict[str, int | None]) -> LaunchedPlan:
    return dataclasses.replace(
        plan, nodes=plan.nodes or sizes["nodes"], world_size=plan.world_size or sizes["world_size"]
    )


def _path(file: str, folder: Path, program: str) -> Path:
    """A file that a command names: from where it runs, or from the script's folder."""
    candidates = (folder / file, Path(file), folder / Path(file).name)
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise InputError(f"the launch gives {file} to {program}, and there is no such file; run presim where it is")
    return path
