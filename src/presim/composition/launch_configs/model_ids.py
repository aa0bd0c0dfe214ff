"""Model ids of Hugging Face's hub as presim's named models."""

from __future__ import annotations

import re

from presim.composition.graph.take import config_file, hub_config, named_models
from presim.errors import InputError

# What is appended to a model's name without another architecture: instruction tuning, formats, dates.
_SUFFIX = re.compile(r"[-_](instruct|chat|base|hf|it|thinking|bf16|v0\.1|2507|0324|0528)$")
_PREFIXES = ("meta-",)
_NAMES = {  # ids that are called otherwise here
    "llama-2-7b": "llama2-7b", "llama-2-13b": "llama2-13b", "llama-2-70b": "llama2-70b",
    "llama-3-8b": "llama3-8b", "llama-3.1-8b": "llama3-8b",
    "llama-3-70b": "llama3-70b", "llama-3.1-70b": "llama3-70b", "llama-3.3-70b": "llama3-70b",
    "llama-3.1-405b": "llama3-405b", "llama-3.2-1b": "llama3-1b", "llama-3.2-3b": "llama3-3b",
    "deepseek-r1": "deepseek-v3", "deepseek-v3-base": "deepseek-v3",
}  # fmt: skip


def named_model(model_id: str) -> str | None:
    """The named model with a hub id's sizes; None: there is none, or the local cache has the id's own config."""
    if hub_config(model_id) is not None:
        return None
    name = model_id.rstrip("/").rpartition("/")[2].lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    while name not in _NAMES and name not in named_models() and (match := _SUFFIX.search(name)):
        name = name[: match.start()]
    name = _NAMES.get(name, name)
    return name if name in named_models() else None


def launched_model(model_id: str, origin: str) -> tuple[str, list[str]]:
    """What presim calls the model of a launch, and a note where that is another name.

    Raises:
        InputError: no config is here, and none is named.
    """
    if name := named_model(model_id):
        return name, ([] if name == model_id else [f"The launch's model {model_id} has the sizes of {name}."])
    try:
        config_file(model_id)
    except InputError as error:
        raise InputError(
            f"{origin} trains {model_id}, which is no named model, and its config.json is not in Hugging Face's local "
            "cache: name MODEL before --from, such as a folder with its config.json"
        ) from error
    return model_id, []
