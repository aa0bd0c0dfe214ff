"""Graphs that presim brings are those of its named models, made by the tracer and from the configs that it has."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from presim.composition.graph import graph_files
from presim.composition.graph.take import config_file, graph_key, named_models, open_graph, packaged_file, take
from presim.errors import InputError

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


def test_a_packaged_graph_needs_no_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in an environment that has the wheel alone; another config, and another type, are not taken for it."""
    monkeypatch.setattr("presim.composition.graph.take.find_torch", lambda: None)
    asked: list[tuple[str, str]] = []

    def refuse(model: str, dtype: str) -> None:
        asked.append((model, dtype))
        raise InputError("no PyTorch")

    monkeypatch.setattr("presim.composition.graph.take.take", refuse)
    assert open_graph("llama3-8b").model == "llama3-8b"
    config = config_file("llama3-8b")
    assert config is not None
    other = tmp_path / "llama3-8b.json"
    other.write_text(config.read_text().replace("4096", "2048"))
    for model, dtype in ((str(other), "bfloat16"), ("llama3-8b", "float16")):
        with pytest.raises(InputError, match="no PyTorch"):
            open_graph(model, dtype)
    assert asked == [(str(other), "bfloat16"), ("llama3-8b", "float16")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[" * 20_000, "is not valid JSON (line 1, byte 100 is nested deeper than 100 levels)"),
        ('{"num_hidden_layers": 1, "num_hidden_layers": 2}', "is not valid JSON ("),
        ("[1]", "is no JSON object"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused_before_it_is_traced(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        open_graph(str(path))
    assert str(refused.value).startswith(f"{path} {reason}")
    assert str(refused.value).endswith("; give a model's config.json")
