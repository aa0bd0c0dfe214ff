"""What the module hooks report to the recorder, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.trace.schema import Category
from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
import torch
from torch import nn
from presim.capture.script.module_hooks import ModuleScopes
from presim.capture.script.optimizer_steps import OptimizerSteps

class Told:  # in the hook's place
    def __init__(self):
        self.calls = []
    def add_own_time(self, ns):
        self.calls.append(("own", ns))
    def retag(self, addresses, category):
        self.calls.append(("retag", len(addresses), int(category)))
    def scope_id(self, name):
        return 0
    def enter_scope(self, scope):
        self.calls.append(("enter",))
    def leave_scope(self):
        pass
    def step(self, number):
        self.calls.append(("step", number))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(300))
    def forward(self, given):
        return self.layers[0](given)

class Observer:  # in the step observer's place
    def model_called(self, module, parameters):
        pass
    def model_returned(self, tokens, samples, batch=None):
        pass
    def model_reset(self):
        pass
    def update_begins(self, target):
        pass
    def updated(self, elements, target):
        told.step(elements)

told = Told()
scopes = ModuleScopes(told, Observer())
OptimizerSteps(scopes, Observer()).install()
model = Model().cuda()
optimizer = torch.optim.Adam(model.layers[0].parameters())
scopes.install()
told.calls.clear()
model(torch.ones(2, 4, device="cuda")).sum().backward()
results["forward"] = list(told.calls)
told.calls.clear()
optimizer.step()
results["step"] = list(told.calls)

class Sharded(torch.optim.Optimizer):  # as ZeroRedundancyOptimizer: its step is that of another one
    def __init__(self, inner, raises=False):
        super().__init__(inner.param_groups, {})
        self.inner, self.raises = inner, raises
    def step(self):
        if self.raises:
            raise RuntimeError
        self.inner.step()

told.calls.clear()
Sharded(optimizer).step()
try:
    Sharded(optimizer, raises=True).step()
except RuntimeError:
    optimizer.step()
results["updates"] = sum(call[0] == "step" for call in told.calls)

import weakref
replica = model._replicate_for_data_parallel()
replica(torch.ones(2, 4, device="cuda"))
reference = weakref.ref(replica)
del replica
results["is_replica_kept"] = reference() is not None
"""


def test_an_optimizer_that_steps_another_one_updates_once(tmp_path: Path) -> None:
    """One that raised before is no outer one of later steps."""
    emulated.require_cuda_torch()
    assert emulated.run(CODE, tmp_path).results["updates"] == 2


def test_time_to_categorise_a_model_is_subtracted_before_its_records(tmp_path: Path) -> None:
    """A record contains the host time so far; later corrections reach back at most half a millisecond."""
    emulated.require_cuda_torch()
    results = emulated.run(CODE, tmp_path).results
    (first, long), *named = results["forward"][:4]
    assert (first, [call[0] for call in named]) == ("own", ["retag"] * 3)
    assert named == [["retag", 600, Category.PARAMETER], ["retag", 0, Category.BUFFER], ["retag", 1, Category.INPUT]]
    assert results["forward"][4] == ["enter"]
    rest = [call[1] for call in results["forward"][4:] if call[0] == "own"]
    assert long > 300 * 1000  # a microsecond for each module at least
    assert max(rest) < long
    assert results["forward"][-1][0] == "own"
    assert not results["is_replica_kept"]  # `DataParallel` makes new ones at each call


@pytest.mark.long
def test_time_to_categorise_gradients_and_states_is_subtracted_before_their_records(tmp_path: Path) -> None:
    """They come around the optimizer's step, and its mark after them."""
    emulated.require_cuda_torch()
    calls = emulated.run(CODE, tmp_path).results["step"]
    kinds = [call[0] for call in calls]
    assert kinds == ["own", "retag", "retag", "own", "retag", "step"]
    assert calls[1:3] == [["retag", 2, Category.PARAMETER], ["retag", 2, Category.GRADIENT]]
    assert calls[4] == ["retag", 4, Category.OPTIMIZER_STATE]  # two moments of each; steps are counted on the host
