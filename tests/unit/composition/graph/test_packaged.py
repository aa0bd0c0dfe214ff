"""Graphs that presim brings are those of its named models, made by the tracer and from the configs that it has."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from presim.composition.graph import graph_files
from presim.composition.graph.take import config_file, graph_key, named_models, open_graph, packaged_file, take

FILES = sorted(Path(str(resources.files("presim.composition.graph").joinpath("packaged"))).glob("*.graph"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_packaged_graph_belongs_to_the_config_and_the_tracer_of_today(path: Path) -> None:
    name = path.name.rsplit(".", 2)[0]
    graph = graph_files.load(path)
    config = config_file(name)
    assert config is not None
    assert name in named_models()
    assert packaged_file(name, graph_key(config, "bfloat16", graph.versions["torch"])) == path


def test_the_models_of_the_readme_are_packaged() -> None:
    assert {"llama3-8b", "llama3-70b"} <= {path.name.rsplit(".", 2)[0] for path in FILES}


@pytest.mark.torch_cuda
@pytest.mark.long
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_packaged_graph_is_what_the_tracer_makes(path: Path) -> None:
    name = path.name.rsplit(".", 2)[0]
    assert open_graph(name) == take(name)
