"""Flat buffers of frameworks, by stand-ins for their classes."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from presim.capture.adapters import flat_buffers
from presim.trace.schema import Category


class Tensor:
    """Stands in for PyTorch's."""

    def __init__(self, elements: int) -> None:
        self.elements = elements

    def untyped_storage(self) -> None: ...


class Scopes:
    """Stands in for the operator hook: the scopes that were open at each call."""

    def __init__(self) -> None:
        self.open: list[int] = []

    def scope_id(self, name: str) -> int:
        return {"gradient_buckets": 7}[name]

    def enter_named_scope(self, scope: int) -> None:
        self.open.append(scope)

    def leave_scope(self) -> None:
        self.open.pop()


def sizes(named: list[tuple[Category, Any]]) -> dict[Category, list[int]]:
    """Elements of the tensors by category, of categories that have any."""
    found = {category: [tensor.elements for tensor in tensors] for category, tensors in named}
    return {category: elements for category, elements in found.items() if elements}


def test_buffers_have_a_category_from_the_start_of_their_construction_on() -> None:
    """A construction that runs out of memory leaves the first of them behind; what is dropped is forgotten."""

    class DeepSpeedZeroOptimizer:
        def __init__(self, fill: Callable[[Any], None]) -> None:
            self.bit16_groups_flat = [Tensor(3)]
            fill(self)
            self.averaged_gradients = {0: [Tensor(5), None]}

    buffers = flat_buffers.FlatBuffers(Scopes())  # type: ignore[arg-type]
    module = types.SimpleNamespace(DeepSpeedZeroOptimizer=DeepSpeedZeroOptimizer)
    buffers._watch(flat_buffers._OWNERS["deepspeed.runtime.zero.stage_1_and_2"], module)
    complete = module.DeepSpeedZeroOptimizer(lambda owner: None)
    assert sizes(buffers.named()) == {Category.PARAMETER: [3], Category.GRADIENT: [5]}
    seen = []
    module.DeepSpeedZeroOptimizer(lambda owner: seen.append([category for category, _ in buffers.named()]))
    assert len(seen[0]) == 2 * len(buffers.named())
    del complete
    assert buffers.named() == []


def test_buckets_are_allocated_in_their_scope() -> None:
    scopes = Scopes()
    inside = flat_buffers.FlatBuffers(scopes)._in_scope(lambda: list(scopes.open))  # type: ignore[arg-type]
    assert (inside(), scopes.open) == ([7], [])
