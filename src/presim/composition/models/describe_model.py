"""Describes the model of a config by its own code, in a process of its own; descriptions are kept in a cache.

Descriptions of named models are part of presim, so they need neither PyTorch nor transformers.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from presim.capture.setup.environment import install_torch
from presim.composition.graph.take import run_exporter
from presim.composition.models.description import Model
from presim.composition.models.description_replies import DescriptionReply
from presim.errors import InputError
from presim.system.files import decode_json, digest_of, make_folder, read_bytes, write_file
from presim.system.files.scratch import temporary_folder

SHIPPED = Path(__file__).parent / "data" / "descriptions.json"
_QUANTIZATION = ("quantization_config", "compression_config")  # says types, not layers


class _Shipped(msgspec.Struct, frozen=True, omit_defaults=True):
    config: str  # digest of what the description is of
    model: Model | None = None
    refusal: str = ""  # of a model that generates no text


def describe(config: Mapping[str, Any], name: str) -> Model:
    """The description of a config's model, without its checkpoint's types.

    Raises:
        InputError: no code here knows the model, or its sizes cannot be.
    """
    structure = structure_of(config)
    cached_answer = _cache_file(structure)
    if (shipped := _shipped().get(digest(structure))) is not None:
        answer = shipped
    elif cached_answer.is_file():
        answer = decode_json(read_bytes(cached_answer, f"delete {cached_answer}"), DescriptionReply)
    else:
        (answer,) = read_code([structure], name)
        make_folder(cached_answer.parent)
        write_file(cached_answer, msgspec.json.encode(answer))
    if answer.model is None:
        raise InputError(f"{name} {answer.refusal}")
    return msgspec.structs.replace(answer.model, name=name)


def structure_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without what says the types of weights."""
    structure = {key: value for key, value in config.items() if key not in _QUANTIZATION}
    return {key: structure_of(value) if isinstance(value, dict) else value for key, value in structure.items()}


def digest(structure: Mapping[str, Any]) -> str:
    """A digest that does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(structure, sort_keys=True).encode()).hexdigest()


@functools.cache
def _shipped() -> dict[str, DescriptionReply]:
    if not SHIPPED.is_file():
        return {}
    entries = decode_json(read_bytes(SHIPPED, "install presim again"), dict[str, _Shipped])
    return {entry.config: DescriptionReply(entry.model, entry.refusal) for entry in entries.values()}


def encode_shipped(answer_by_id: Mapping[str, tuple[Mapping[str, Any], DescriptionReply]]) -> bytes:
    """Named models' configs and descriptions as the file that is part of presim."""
    entries = {
        model_id: _Shipped(digest(structure_of(config)), answer.model, answer.refusal)
        for model_id, (config, answer) in answer_by_id.items()
    }
    return msgspec.json.format(msgspec.json.encode(entries, order="sorted"), indent=0) + b"\n"


def _cache_file(structure: Mapping[str, Any]) -> Path:
    key = "\n".join((digest(structure), *map(_version, ("transformers", "torch", "vllm")), _reader_digest()))
    name = hashlib.sha256(key.encode()).hexdigest()
    return Path(platformdirs.user_cache_dir("presim")) / "models" / f"{name}.json"


@functools.cache
def _reader_digest() -> str:
    """A digest of the code that reads models."""
    folder = Path(__file__).parent
    files = sorted([folder / "decoder_layers.py", folder / "description.py", *(folder / "export").glob("*.py")])
    return hashlib.sha256("".join(digest_of(file) for file in files).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def read_code(structures: Sequence[Mapping[str, Any]], name: str) -> list[DescriptionReply]:
    """What the models' own code says of each config.

    Raises:
        InputError: PyTorch or transformers is missing, or the code ended without an answer.
    """
    with temporary_folder("model") as folder:
        request, out = Path(folder, "configs.json"), Path(folder, "answers.json")
        write_file(request, json.dumps(structures).encode())
        ended = run_exporter([sys.executable, "-m", "presim.composition.models.export", str(request), str(out)])
        if not out.exists():
            raise InputError(_reason(name, ended.stderr))
        answers: list[DescriptionReply] = decode_json(
            read_bytes(out, "describe the model again"), list[DescriptionReply]
        )
    return answers


def _reason(name: str, stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else "it printed nothing"
    for package, install in (("torch", install_torch()), ("transformers", "pip install transformers")):
        if f"No module named '{package}'" in last:
            return f"{name} is no named model, and its code is read with {package}, which is missing: `{install}`"
    return f"the layers of {name} cannot be read: {last}; report it with its config.json"
