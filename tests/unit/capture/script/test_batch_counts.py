"""The model and the batch of a program that calls several outermost modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
import torch
from torch import nn
from presim.capture.script.batch_counts import OutermostCalls

class RotaryEmbedding(nn.Module):
    pass  # every chunk has one

class Chunk(nn.Module):
    def __init__(self, layers, vocabulary=0):
        super().__init__()
        self.rotary = RotaryEmbedding()
        self.embedding = nn.Embedding(vocabulary, 8) if vocabulary else None
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(layers))

class Critic(Chunk):
    pass

def call(batch, module, given):
    batch.enter(module, list(module.parameters()))
    batch.leave(module, (given,), {})

class Counted(OutermostCalls):
    def __init__(self):
        super().__init__(self.count, self.forget)
        self.inputs = []
    def count(self, tokens, samples, batch):
        self.inputs.append((tokens, samples))
    def forget(self):
        self.inputs.clear()

def told(batch):
    return [*map(sum, zip(*batch.inputs)), batch.parameters, batch.parameters_local]

ids, hidden = torch.zeros(2, 15, dtype=torch.int64), torch.zeros(2, 15, 8)
for name, first, second in (("first", Chunk(8, 10), Chunk(2)), ("second", Chunk(2, 10), Chunk(8))):
    batch = Counted()
    with torch.no_grad():  # a schedule runs all for their shapes
        call(batch, first, ids)
        call(batch, second, hidden)
    for _ in range(2):
        for _ in range(3):
            call(batch, first, ids)
            call(batch, second, hidden)
    results[name] = told(batch)

model, average, critic, teacher = Chunk(4, 10), Chunk(4, 10), Critic(2, 10), Chunk(3, 10).requires_grad_(False)
batch = Counted()
for number in range(2):
    with torch.no_grad():
        call(batch, average, ids)
    call(batch, model, ids)
    call(batch, critic, ids)
    call(batch, teacher, ids)
results["copies"] = told(batch)

batch, model = Counted(), Chunk(2, 10)
call(batch, model, ids)
gathered = model.layers[0]
gathered.weight = nn.Parameter(gathered.weight[:4].detach())  # as sharding may show it from the second call on
call(batch, model, ids)
results["gathered"] = told(batch)

class Square(nn.Linear):
    def forward(self, row):
        batch.enter(self, list(self.parameters()))
        output = super().forward(row)
        batch.leave(self, (row,), {})
        return output

batch, model = Counted(), Square(8, 8)
loss = lambda weights, row: torch.func.functional_call(model, weights, (row[None],)).sum()
torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(model.named_parameters()), torch.zeros(15, 8))
results["mapped"] = [batch.inputs, batch.sample]
"""


def test_chunks_of_a_pipeline_are_one_model_and_the_first_has_the_batch(tmp_path: Path) -> None:
    """Whichever chunk is larger. Modules that only evaluate and models of another class are excluded."""
    emulated.require_cuda_torch()
    results = emulated.run(CODE, tmp_path).results
    parameters, tokens, samples = (2 + 8) * 64 + 10 * 8, 30, 2
    assert results["first"] == results["second"] == [6 * tokens, 6 * samples, parameters, parameters]
    assert results["copies"] == [2 * tokens, 2 * samples, 4 * 64 + 10 * 8, 4 * 64 + 10 * 8]
    assert results["gathered"][-2:] == [2 * 64 + 10 * 8, 2 * 64 + 10 * 8]


def test_samples_that_are_mapped_over_count(tmp_path: Path) -> None:
    """Gradients for each sample: the module sees one row at a time."""
    emulated.require_cuda_torch()
    inputs, sample = emulated.run(CODE, tmp_path).results["mapped"]  # type: ignore[misc]
    assert inputs == [[0, 15]]
    assert sample == "the first dimension of the tensor [1, 8] that Square takes, times the 15 that torch.vmap maps"
