"""The model that a word means: a known name, a Hugging Face id, a ``config.json``, or a folder with one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from presim.composition.graph.take import config_file, hub_config, named_models, nearest_names
from presim.composition.models import checkpoint
from presim.composition.models.decoder_layers import Experts as Experts
from presim.composition.models.decoder_layers import Indexer as Indexer
from presim.composition.models.decoder_layers import Latent as Latent
from presim.composition.models.describe_model import describe
from presim.composition.models.description import Checkpoint
from presim.composition.models.description import Model as Model
from presim.errors import InputError
from presim.system.files import (
    FormatError,
    decode_settings_json,
    decode_toml,
    names_file,
    names_folder,
    read_bytes,
    read_text,
    read_unpacked,
    shortened,
)

TABLE = Path(__file__).parent / "data" / "models.toml"
_OF_TABLE = ("id", "names", "named", "quantised", "repository", "null")  # keys that a config does not have
_BESIDE = "hf_quant_config.json"  # ModelOpt's file beside a config without quantization_config
_QUANTISED_NAMES = ("nvfp4", "fp4", "fp8", "awq", "gptq", "int4", "int8", "w4a16", "w8a8", "bnb")


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    tables = decode_toml(read_text(TABLE, "install presim again"))
    words = {_plain(word): {**table, "id": key} for key, table in tables.items() for word in (key, *table["names"])}
    for key, table in tables.items():
        for word, quantization in table.get("quantised", {}).items():
            words[_plain(word)] = {**table, "id": key, "named": word, "quantization_config": quantization}
    return words


def _plain(name: str) -> str:
    """A normalised name: llama-3-8b becomes llama3-8b."""
    return name.lower().replace("llama-", "llama")


def names() -> list[str]:
    """Models with a built-in description."""
    return sorted({str(table["id"]) for table in _table().values()})


def all_names() -> list[str]:
    """Models with a built-in description, and those whose config presim brings for training."""
    return sorted({*names(), *named_models()})


def checkpoint_of(word: str, algorithm: str) -> str | None:
    """The published checkpoint of a known model that ModelOpt quantised by an algorithm, such as NVFP4; None: none."""
    known_model = _table().get(_plain(word)) or {}
    checkpoints = known_model.get("quantised", {}).items()
    return next((name for name, types in reversed(checkpoints) if types.get("quant_algo") == algorithm), None)


def repositories(word: str) -> tuple[str, ...]:
    """Ids of published checkpoints of a known model, the one that a word means first; none for another word."""
    table = _table().get(_plain(word))
    if table is None:
        return ()
    ids = [name for name in table["names"] if "/" in name]
    follows = [name for name in ids if "instruct" in name.lower() or "chat" in name.lower()]
    usual = str(table.get("repository") or (follows or ids)[0])
    meant = str(table.get("named") or (word if word in ids else usual))
    return tuple(dict.fromkeys((meant, usual, *table.get("quantised", ()))))


def find(word: str) -> Model:
    """Find a model by name, by id, by ``config.json``, or by a folder that contains one.

    Raises:
        InputError: there is no such model, or no code here knows it.
    """
    return from_config(*config_of(word))


def config_of(word: str) -> tuple[dict[str, Any], str]:
    """The config that a word means, with the model's name; a known name's has only the keys that change a step."""
    if (table := _table().get(_plain(word))) is not None:
        config = {key: value for key, value in table.items() if key not in _OF_TABLE}
        config |= dict.fromkeys(table.get("null", ()))
        return config, str(table.get("named", table["id"]))
    if word in named_models() and not names_file(Path(word)):  # presim brings its config for training
        return _read(config_file(word) or Path(word)), word
    path = Path(word)
    if names_folder(path):
        path = path / "config.json"
        if not names_file(path):
            raise InputError(f"{shortened(word)} is a folder without config.json; give the one with the model's config")
    if names_file(path):
        return _read(path), path.resolve().parent.name or str(path)
    if (cached := hub_config(word) if word.count("/") == 1 else None) is not None:
        return _read(cached), word
    nearest = nearest_names(word, {*names(), *named_models()})
    raise InputError(
        f"unknown model {shortened(word)!r}{nearest} `presim models` lists the names. "
        "For another model, give its config.json, or its id once `hf download ID config.json` has put that into "
        "Hugging Face's cache (presim downloads nothing)"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        config = decode_settings_json(read_unpacked(path, "give a model's config.json"))
    except FormatError as error:
        raise InputError(f"{path} is not valid JSON ({error}); give a model's config.json") from error
    not_numbers = [name for name, value in config.items() if value != value] if isinstance(config, dict) else []
    if not_numbers:
        remedy = "give the config.json published with the weights"
        raise InputError(f"{path}: {not_numbers[0]} is NaN, which is no number; {remedy}")
    quantization_file = path.parent / _BESIDE
    if isinstance(config, dict) and "quantization_config" not in config and quantization_file.is_file():
        try:
            quantization = decode_settings_json(read_bytes(quantization_file, f"give a valid {_BESIDE}"))[
                "quantization"
            ]
        except (FormatError, KeyError, TypeError) as error:
            raise InputError(f"{quantization_file} is not ModelOpt's ({error}); give the published one") from error
        config["quantization_config"] = {"quant_method": "modelopt", **quantization}
    return config  # type: ignore[no-any-return]


def from_config(config: Mapping[str, Any], name: str) -> Model:
    """The description of a Hugging Face config, with the types of its checkpoint.

    Raises:
        InputError: no code here knows the model, or its sizes cannot be.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"the config of {name} is not a JSON object; give a decoder's config.json")
    model = describe(config, name)
    text = config.get("text_config")
    parts = [part for part in (config, text) if isinstance(part, Mapping)]
    keys = ("quantization_config", "compression_config")  # the second is of older files of compressed-tensors
    quantization = next((part[key] for part in parts for key in keys if part.get(key)), None)
    if quantization is not None and not isinstance(quantization, Mapping):
        raise InputError(f"the quantization_config of {name} is not a JSON object; give the published config.json")
    if quantization is None:
        elsewhere = _quantised_elsewhere(config)
        return msgspec.structs.replace(model, checkpoint=elsewhere) if elsewhere else _unless_named_so(model)
    expert_type = next((str(part["expert_dtype"]) for part in (quantization, *parts) if part.get("expert_dtype")), "")
    return checkpoint.read(model, quantization, "quantization_config", expert_type)


def _quantised_elsewhere(config: Mapping[str, Any]) -> Checkpoint | None:
    """What says that weights are quantised where no engine reads it; None: nothing does."""
    if isinstance(mlx := config.get("quantization"), Mapping) and "bits" in mlx:
        problem = f"is quantised by MLX to {mlx['bits']} bits, which engines on GPUs do not load"
        return Checkpoint(origin="quantization", problem=problem)
    for key, part in config.items():
        if isinstance(part, Mapping) and (types := part.get("quantization_config")):
            method = types.get("quant_method") if isinstance(types, Mapping) else None
            problem = f"is quantised by {method or 'an unnamed method'} in its {key}, where engines do not look for it"
            return Checkpoint(origin=key, problem=problem)
    return None


def _unless_named_so(model: Model) -> Model:
    """The model of 16 bits, with a note if its name says otherwise."""
    words = [word for word in _QUANTISED_NAMES if word in model.name.lower().replace("bf16", "").split("/")[-1]]
    if not words:
        return model
    note = (
        f"The name says {words[0].upper()}, but its files do not say which weights are quantised (no "
        f"quantization_config, no {_BESIDE}): they are taken as 16 bits; say --weights."
    )
    return msgspec.structs.replace(model, notes=(*model.notes, note))
