"""The number of layers in a Hugging Face config, under the name that the model's family gives it."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from presim.system.files import read_text

_USUAL = "num_hidden_layers"


def layers_of(config: Mapping[str, Any]) -> int:
    """Number of layers; 0: the config does not say."""
    number = config.get(_field_of(config))
    return number if isinstance(number, int) else 0


def with_layers(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The config of a model with the first layers; lists with an entry for each layer are cut, too."""
    number = layers_of(config)
    cut = {name: value[:layers] for name, value in config.items() if isinstance(value, list) and len(value) == number}
    return {**config, **cut, _field_of(config): layers}


def _field_of(config: Mapping[str, Any]) -> str:
    """The config's field, as ``num_hidden_layers`` or GPT-2's ``n_layer``."""
    if _USUAL in config:
        return _USUAL
    return _own_name(str(config.get("model_type", "")))


@functools.cache
def _own_name(model_type: str) -> str:
    """What transformers' config of a model type calls the number of layers.

    It is read from the text of the class: importing it would import PyTorch.
    """
    for file in _config_files(model_type):
        for node in ast.walk(ast.parse(read_text(file, "reinstall transformers"))):
            if isinstance(node, ast.ClassDef):
                values = dict(_literals(node))
                names = values.get("attribute_map")
                if values.get("model_type") == model_type and isinstance(names, dict):
                    return str(names.get(_USUAL, _USUAL))
    return _USUAL


def _config_files(model_type: str) -> Iterator[Path]:
    spec = importlib.util.find_spec("transformers")
    folder = model_type.replace("-", "_")
    if spec is None or spec.origin is None or not folder.isidentifier():
        return
    yield from sorted((Path(spec.origin).parent / "models" / folder).glob("configuration_*.py"))


def _literals(node: ast.ClassDef) -> Iterator[tuple[str, object]]:
    """Names and values that a class assigns, where these are literals."""
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                yield statement.targets[0].id, ast.literal_eval(statement.value)
            except ValueError:
                continue
