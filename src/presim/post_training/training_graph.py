"""The graph of a model's training step by the names that serving knows, too."""

from __future__ import annotations

from pathlib import Path

import msgspec

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import config_file, named_models, open_graph
from presim.errors import InputError
from presim.serving.model_lookup import config_of
from presim.system.files import write_file
from presim.system.files.scratch import temporary_folder


def training_graph(word: str) -> OperatorGraph:
    """The graph of a known name, a folder with ``config.json``, or an id in Hugging Face's local cache.

    Raises:
        InputError: there is no such model, or it cannot be traced.
    """
    if word in named_models() or _has_config(word):
        return open_graph(word)
    config, name = config_of(word)
    with temporary_folder("rl") as folder:
        file = Path(folder) / name.replace("/", "-") / "config.json"
        file.parent.mkdir()
        write_file(file, msgspec.json.encode(config))
        return open_graph(str(file))


def _has_config(word: str) -> bool:
    try:
        return config_file(word) is not None
    except InputError:
        return False
