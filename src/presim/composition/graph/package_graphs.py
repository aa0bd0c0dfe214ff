"""Export graphs of named models into presim's own folder.

    python -m presim.composition.graph.package_graphs [NAME…]

Graphs depend on the version of PyTorch. With the version that made them, and the unchanged config of the model, presim
reads them instead of tracing the model, which takes half a minute of CPU time.
"""

from __future__ import annotations

import sys

from presim.capture.setup.environment import require_torch
from presim.composition.graph import graph_files
from presim.composition.graph.take import config_file, graph_key, named_models, open_graph, packaged_file
from presim.errors import InputError

_DTYPE = "bfloat16"


def package_graph(name: str) -> None:
    """Export a model's graph; files of the same model for other versions are removed.

    Raises:
        InputError: there is no model of this name, or it cannot be traced.
    """
    config = config_file(name)
    if config is None or name not in named_models():
        raise InputError(f"{name} is not a named model; there are {', '.join(named_models())}")
    path = packaged_file(name, graph_key(config, _DTYPE, require_torch().version))
    if path.is_file():
        return
    path.parent.mkdir(exist_ok=True)
    graph = open_graph(name, _DTYPE)
    for outdated in path.parent.glob(f"{name}.*.graph"):
        outdated.unlink()
    graph_files.save(graph, path)


if __name__ == "__main__":
    for model in sys.argv[1:] or named_models():
        package_graph(model)
