"""A recording whose calls know what else they were called with: numbers, flags, offsets of views."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch.utils._pytree import tree_leaves, tree_map

from presim.composition.graph import graph_build
from presim.composition.graph.export import recorder, step
from presim.composition.graph.export.meta_models import shorten
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.sizes import choose_witnesses


class Tensor:
    """Where a call had its so manieth tensor."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"T{self.place}"


CALLS: list[tuple[Any, Any, Any]] = []  # function, arguments and named arguments, tensors replaced
_KNOWN: dict[str, int] = {}


class Recorder(recorder.Recorder):
    """Adds ``call``, an index into `CALLS`, and ``offsets`` of inputs and outputs to each call's attributes."""

    def _take_down(self, function: Any, args: Any, kwargs: Any, inputs: Any, outputs: Any) -> None:
        super()._take_down(function, args, kwargs, inputs, outputs)
        places = iter(range(len(inputs)))
        plain = tree_map(lambda leaf: Tensor(next(places)) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs))
        number = _KNOWN.setdefault(f"{function} {plain}", len(CALLS))
        if number == len(CALLS):
            CALLS.append((function, *plain))
        offsets = [tensor.storage_offset() for tensor in (*inputs, *outputs)]
        call = self.calls[-1]
        attributes = {**call.attributes, "call": number, "offsets": offsets}
        self.calls[-1] = msgspec.structs.replace(call, attributes=attributes)


_check = torch._check


def _lenient(condition: Any, message: Any = None) -> None:
    """Grouped products in fp32, which the CPU computes, too; meta tensors know those of GPUs alone."""
    if condition or message is None or not str(message()).startswith("Expected mat_"):
        _check(condition, message)


def graph_of(make: Any, training: bool = True) -> OperatorGraph:
    """The graph of a model, which `make` builds on the meta device; its forward pass alone without ``training``."""
    step.Recorder = Recorder  # type: ignore[misc]
    torch._check = _lenient
    with torch.device("meta"):
        model = make()
    model.train(training)
    repeats = shorten(model)
    witnesses = choose_witnesses({size for tensor in model.parameters() for size in tensor.shape})[0]
    recording = step.record(model, witnesses.batch, witnesses.sequence, repeats, "small")
    return graph_build.build(recording)


def filled(number: int, tensors: list[torch.Tensor]) -> tuple[Any, Any, Any]:
    """A call's function and arguments with tensors in their places."""
    function, args, kwargs = CALLS[number]
    fill = lambda leaf: tensors[leaf.place] if isinstance(leaf, Tensor) else leaf  # noqa: E731
    args, kwargs = tree_map(fill, (args, kwargs), is_leaf=lambda leaf: isinstance(leaf, Tensor))
    assert not any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs)))
    kwargs = {name: torch.device("cpu") if name == "device" else value for name, value in kwargs.items()}
    return function, args, kwargs
