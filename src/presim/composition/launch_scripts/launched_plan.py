"""A launch script as a model with a plan, and what of it is not understood (`presim compose --from`)."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from presim.composition.graph.take import config_file
from presim.composition.launch_configs.config_files import SUFFIXES, read_config_file, with_options
from presim.composition.launch_configs.mlperf_settings import is_mlperf, mlperf_plan
from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.settings import read_settings
from presim.composition.launch_configs.trainer_commands import LAUNCHERS, plan_of_command
from presim.composition.launch_scripts.bash_script import Script
from presim.composition.launch_scripts.bash_values import MARK
from presim.composition.launch_scripts.megatron_arguments import Arguments, MegatronLaunch, launch_of
from presim.composition.launch_scripts.megatron_model import model_config
from presim.composition.launch_scripts.megatron_plan import (
    bridge_fields,
    growth_note,
    plan_fields,
    precision_of,
    unread,
)
from presim.composition.launch_scripts.nemo_arguments import is_nemo, nemo_launch
from presim.errors import InputError
from presim.system.files import decode_json, make_folder, read_bytes, read_text, write_file

_SETTING = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SLURM = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_SIZES = (
    ("--num-layers", "num_hidden_layers", "n_layer"),
    ("--hidden-size", "hidden_size", "n_embd"),
    ("--num-attention-heads", "num_attention_heads", "n_head"),
    ("--num-experts", "num_local_experts", "num_experts", "n_routed_experts"),
)
_NOT_COMPARED = {  # change no time, or are written in several ways
    "architectures", "vocab_size", "max_position_embeddings", "n_positions", "rms_norm_eps", "rope_theta",
    "hidden_act", "activation_function", "attn_pdrop", "embd_pdrop", "resid_pdrop", "sliding_window",
    "scoring_func", "topk_method", "norm_topk_prob", "routed_scaling_factor", "mlp_only_layers", "decoder_sparse_step",
}  # fmt: skip
_MOST_NAMED = 20
_LENGTHS = ("--train-iters", "--train-samples", "--train-tokens")
_TRAINERS = re.compile(r"train|tune|sft", re.IGNORECASE)  # in a program's name


def read_launch(command: str, model: str | None = None, named_fields: Collection[str] = ()) -> LaunchedPlan:
    """The plan of ``NAME=VALUE … FILE ARGUMENT …``, as in a shell: a script, a configuration, or a command itself.

    ``model``: in place of the launch's sizes. ``named_fields``: of the plan, that options set.

    Raises:
        InputError: the launch cannot be followed, starts no trainer that is read, or says too little.
    """
    settings, path, words = _command(command)
    if path.suffix in (".yaml", ".yml") and is_nemo(values := read_settings(path, "configuration")):
        launch, nemo_notes = nemo_launch(with_options(values, words), path.name)
        plan = _megatron_plan([path.name], launch, model, path.name)
        plan = dataclasses.replace(plan, notes=(*plan.notes, *nemo_notes))
    elif path.suffix in SUFFIXES:
        plan = read_config_file(path, words, model, named_fields)
    elif path.name in LAUNCHERS or path.name.startswith("python"):
        plan = _command_plan([str(path), *words], Path(), [], path.name, model, named_fields)
    else:
        plan = _script_plan(path, settings, words, model, named_fields)
    if plan.notes[:1] and plan.notes[0].startswith("Read from "):
        return plan
    return dataclasses.replace(plan, notes=(f"Read from {path.name}.", *plan.notes))


def _script_plan(
    path: Path, settings: Mapping[str, str], words: list[str], model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    text = read_text(path, "name a launch script")
    sizes = [word for line in _SLURM.findall(text) for word in line.split()]
    script = Script({**_slurm_variables(sizes), **settings}, words, path.parent)
    script.follow(text)
    variables = {name: values[0] for name, values in script.variables.values.items() if values}
    if not script.launch and is_mlperf(variables):
        plan = mlperf_plan(_without_marks(variables), str(path.resolve()), path.name, model)
        return dataclasses.replace(plan, notes=(*plan.notes, *_undecided(script)))
    if not script.launch:
        raise InputError(f"{path} launches no trainer that presim reads; name another script")
    plan = _command_plan(script.launch, path.parent, sizes, path.name, model, named_fields)
    if plan.framework != "megatron" and plan.world_size is None:
        plan = _sized_by_variables(plan, variables)
    return dataclasses.replace(plan, notes=(*plan.notes, *_undecided(script)))


def _slurm_variables(sizes: list[str]) -> dict[str, str]:
    """What Slurm would set by a script's ``#SBATCH`` lines."""
    launch = launch_of([*sizes, "none.py"])
    names = {"SLURM_NNODES": launch.nodes, "SLURM_JOB_NUM_NODES": launch.nodes}
    names |= {"SLURM_GPUS_ON_NODE": launch.gpus_per_node, "SLURM_GPUS_PER_NODE": launch.gpus_per_node}
    return {name: str(number) for name, number in names.items() if number is not None}


def _sized_by_variables(plan: LaunchedPlan, variables: Mapping[str, str]) -> LaunchedPlan:
    """The plan on the GPUs that LLaMA-Factory and others take from the environment."""
    per_node, nodes = variables.get("NPROC_PER_NODE", ""), variables.get("NNODES", "1")
    if not (per_node.isdigit() and nodes.isdigit()):
        return plan
    return dataclasses.replace(plan, nodes=int(nodes), world_size=int(nodes) * int(per_node))


def _without_marks(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not MARK.search(value)}


def _command_plan(
    words: list[str], folder: Path, sizes: list[str], origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    """The plan of a command with Megatron-LM's arguments, or of another trainer's."""
    if any(word.endswith(".py") for word in words):
        launch = launch_of(words, sizes)
        if launch.arguments.has("--num-layers") or launch.arguments.has("--micro-batch-size"):
            _check_training(_program(words), launch.arguments, origin)
            return _megatron_plan(words, launch, model, origin)
    plan = plan_of_command(words, folder, origin, model, named_fields)
    if plan is None:
        raise InputError(
            f"{origin} launches {_program(words)}, whose arguments are of no trainer that presim reads; run it under "
            "`presim run`"
        )
    return plan


def _check_training(program: str, arguments: Arguments, origin: str) -> None:
    """Megatron trains for a number of iterations or samples; its programs that generate text have neither."""
    if _TRAINERS.search(program) or any(arguments.has(name) for name in _LENGTHS):
        return
    raise InputError(
        f"{origin} launches {program} without {_LENGTHS[0]} or {_LENGTHS[1]}: it does not train, and presim composes "
        "training; run it under `presim run`, or name another script"
    )


def _megatron_plan(words: list[str], launch: MegatronLaunch, model: str | None, origin: str) -> LaunchedPlan:
    arguments = launch.arguments
    fields = plan_fields(arguments)
    precision, notes = precision_of(arguments)
    overrides = bridge_fields(arguments, fields)
    model = _checked(model, arguments) if model else _model(arguments)
    growth_notes = growth_note(arguments, fields)
    notes = [f"Read from {origin}: {_program(words)}.", *notes, *growth_notes, *_unread(arguments)]
    return LaunchedPlan(model, fields, precision, tuple(overrides), launch.nodes, launch.gpus_per_node, tuple(notes))


def _command(command: str) -> tuple[dict[str, str], Path, list[str]]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--from {command!r} cannot be split into words: {error}") from error
    settings = {}
    while words and (match := _SETTING.fullmatch(words[0])):
        settings[match[1]] = match[2]
        words = words[1:]
    if not words:
        raise InputError(f"--from {command!r} names no script; write it as in a shell: NAME=VALUE SCRIPT ARGUMENT …")
    return settings, Path(words[0]), words[1:]


def _program(words: list[str]) -> str:
    """The file, or the module behind ``-m`` that is no launcher."""
    modules = [name for option, name in itertools.pairwise(words) if option == "-m" and not name.startswith("torch.")]
    file = next((word for word in words if word.endswith(".py")), None)
    return file.rpartition("/")[2] if file else (modules or words)[0]


def _unread(arguments: Arguments) -> list[str]:
    if not (names := unread(arguments)):
        return []
    others_text = f" and {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else ""
    return [f"Arguments that are not understood, and left out: {', '.join(names[:_MOST_NAMED])}{others_text}."]


def _undecided(script: Script) -> list[str]:
    if not script.undecided:
        return []
    conditions = MARK.sub(r"\1", "; ".join(script.undecided[:_MOST_NAMED]))
    return [f"Only running the script would tell, and counted as false: {conditions}."]


def _checked(model: str, arguments: Arguments) -> str:
    """The model that the user named, whose layers have to be the script's."""
    config = config_file(model)
    values = decode_json(read_bytes(config, "name another model"), dict[str, Any]) if config else {}
    try:
        described = model_config(arguments, vocabulary=values.get("vocab_size") or 1)
    except InputError:  # layers that only MODEL describes
        described = {name: arguments.number(option) for option, *names in _SIZES for name in names}
    for name, size in described.items():
        model_size = values.get(name)
        if None in (size, model_size) or name in _NOT_COMPARED or {size, model_size} == {"llama", "mistral"}:
            continue
        if size != model_size:
            raise InputError(f"{model} has {name} = {model_size}, and the launch {size}; change one of them")
    return model


def _model(arguments: Arguments) -> str:
    """A config in the user's cache, by what it says; a captured plan depends on its path."""
    config = model_config(arguments)
    text = json.dumps(config, indent=1, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = Path(platformdirs.user_cache_dir("presim")) / "launched-models" / digest
    make_folder(folder)
    write_file(folder / "config.json", text.encode())
    return str(folder / "config.json")
