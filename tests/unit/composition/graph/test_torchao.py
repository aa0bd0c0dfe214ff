"""Graphs of modules with a library's own class of tensors have the operators that it calls in turn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from presim.composition.graph.take import take
from presim.composition.graph.works import Sizes, works
from presim.trace.signatures import Gemm

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("torchao")]
LAYERS, SIDE = 5, 256
FACTORY = f"""
import torch
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(512, {SIDE})
        self.layers = torch.nn.ModuleList(torch.nn.Linear({SIDE}, {SIDE}, bias=False) for _ in range({LAYERS}))

    def forward(self, input_ids):
        hidden = self.words(input_ids)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return hidden

def build():
    return convert_to_float8_training(Model(), config=Float8LinearConfig.from_recipe_name("rowwise"))
"""


def test_torchao_s_eager_float8_is_taken_kernel_by_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operand of a product is cast by itself: its largest values, their scales, and the values are kernels."""
    (tmp_path / "float8_model.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    graph = take("float8_model:build")
    sizes = Sizes(graph, 2, 128)
    times: Counter[object] = Counter()
    names: Counter[str] = Counter()
    for segment in graph.segments:
        for node in segment.nodes:
            names[node.operator] += segment.count
            times.update(
                {signature: segment.count for _, signature in works(node, sizes) if isinstance(signature, Gemm)}
            )
    rows = 2 * 128
    assert {(one.dtype, one.m, one.n, one.k) for one in times if isinstance(one, Gemm)} == {
        ("float8_e4m3fn", rows, SIDE, SIDE)
    }
    assert sum(times.values()) == names["aten::_scaled_mm"] == 3 * LAYERS
    assert names["aten::amax"] == 6 * LAYERS  # of two operands for each of three products
