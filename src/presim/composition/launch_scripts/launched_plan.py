"""A launch script as a model with a plan, and what of it is not understood (`presim compose --from`)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from presim.composition.graph.take import config_file
from presim.composition.launch_scripts.bash_script import Script
from presim.composition.launch_scripts.bash_values import MARK
from presim.composition.launch_scripts.megatron_arguments import Arguments, launch_of
from presim.composition.launch_scripts.megatron_model import model_config
from presim.composition.launch_scripts.megatron_plan import bridge_fields, plan_fields, precision_of, unread
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
_WAY_BY_SUFFIX = {  # of files that are no launch scripts
    ".toml": "torchtitan's options follow --framework torchtitan --framework-args, and a plan of presim's --plan",
    ".yaml": "give Megatron-Bridge's with --framework-args FILE, or run accelerate's under `presim run`",
    ".yml": "give Megatron-Bridge's with --framework-args FILE, or run accelerate's under `presim run`",
    ".json": "give DeepSpeed's with --framework deepspeed --framework-args FILE",
    ".py": "run it under `presim run`",
}
_MOST_NAMED = 20


@dataclasses.dataclass(frozen=True)
class LaunchedPlan:
    """What a launch script trains, and how."""

    model: str  # a name, or the path of a config
    fields: Mapping[str, Any]  # of a plan
    precision: str
    overrides: tuple[str, ...]  # of Megatron-Bridge's configuration
    nodes: int | None
    gpus_per_node: int | None
    notes: tuple[str, ...]


def read_launch(command: str, model: str | None = None) -> LaunchedPlan:
    """The plan of ``NAME=VALUE … SCRIPT ARGUMENT …``, as in a shell. ``model``: in place of the script's sizes.

    Raises:
        InputError: the script cannot be followed, launches no Megatron-LM, or says too little.
    """
    settings, path, words = _command(command)
    if path.suffix in _WAY_BY_SUFFIX:
        raise InputError(
            f"--from reads launch scripts of Megatron-LM, and {path.name} is none: {_WAY_BY_SUFFIX[path.suffix]}"
        )
    text = read_text(path, "name a launch script")
    script = Script(settings, words, path.parent)
    script.follow(text)
    if not any(word.endswith(".py") for word in script.launch):
        raise InputError(f"{path} launches no program of Python with Megatron-LM's arguments; name another script")
    launch = launch_of(script.launch, [word for line in _SLURM.findall(text) for word in line.split()])
    arguments = launch.arguments
    if not arguments.has("--num-layers") and not arguments.has("--micro-batch-size"):
        raise InputError(f"{path} launches {_program(script.launch)}, whose arguments are not Megatron-LM's")
    fields = plan_fields(arguments)
    precision, notes = precision_of(arguments)
    overrides = bridge_fields(arguments, fields)
    model = _checked(model, arguments) if model else _model(arguments)
    notes = [f"Read from {path.name}: {_program(script.launch)}.", *notes, *_left_out(arguments, script)]
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
    return next(word for word in words if word.endswith(".py")).rpartition("/")[2]


def _left_out(arguments: Arguments, script: Script) -> list[str]:
    notes = []
    if names := unread(arguments):
        others_text = f" and {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else ""
        notes.append(f"Arguments that are not understood, and left out: {', '.join(names[:_MOST_NAMED])}{others_text}.")
    if script.undecided:
        conditions = MARK.sub(r"\1", "; ".join(script.undecided[:_MOST_NAMED]))
        notes.append(f"Only running the script would tell, and counted as false: {conditions}.")
    return notes


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
