"""What a graph names is there, and a file of another is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from presim.composition.graph import graph_files
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.references import missing
from presim.composition.graph.works import Sizes, works
from presim.errors import InputError
from support.models import llama

pytestmark = pytest.mark.torch_cuda


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda graph: graph["segments"][1]["nodes"][0][2][0].__setitem__(0, 9999), "names value 9999"),
        (lambda graph: graph["segments"][1]["nodes"][0][2][0].__setitem__(1, 9999), "names shape 9999 or"),
        (lambda graph: graph["segments"][0]["nodes"][0].__setitem__(5, [7]), r"writes inputs \(7,\) of"),
        (lambda graph: _carried(graph).__setitem__(4, 9999), "is value 9999 of segment"),
        (lambda graph: graph["segments"][1].update(count=255), "has other blocks"),
        (lambda graph: graph["segments"][1].update(count=0), "0 blocks from number 0 on cannot be"),
        (lambda graph: graph["segments"][3].update(gradients={"lm_head.weight": -2}), "lm_head.weight is value -2"),
        (lambda graph: graph["parameters"][0].__setitem__(3, 77), "is of segment 77, which is not there"),
    ],
)
def test_a_graph_that_names_what_it_lacks_is_refused(spoil: Callable[[Any], None], says: str, tmp_path: Path) -> None:
    graph = msgspec.json.decode(msgspec.json.encode(llama()))
    spoil(graph)
    (tmp_path / "g.json").write_bytes(msgspec.json.encode(graph))
    with pytest.raises(InputError, match=rf"g\.json is damaged: .*{says}.*; make it again with `presim graph`$"):
        graph_files.load(tmp_path / "g.json")


def _carried(graph: Any) -> Any:
    return next(value for segment in graph["segments"] for value in segment["values"] if value[0] == "segment")


def test_a_whole_graph_lacks_nothing() -> None:
    assert not list(missing(llama()))


def test_an_operator_whose_tensors_have_too_few_dimensions_is_named() -> None:
    graph: OperatorGraph = llama()
    flat = next(place for place, shape in enumerate(graph.shapes) if len(shape) == 1)
    node = next(node for segment in graph.segments for node in segment.nodes if node.operator == "aten::mm")
    bent = msgspec.structs.replace(
        node, inputs=tuple(msgspec.structs.replace(operand, shape=flat) for operand in node.inputs)
    )
    with pytest.raises(InputError, match=r"^aten::mm in .* has inputs .*, which it cannot have: make the graph again"):
        works(bent, Sizes(graph, 1, 64))
