"""What the outermost modules say of the model and of a step's input: parameters, tokens, samples.

The model is the outermost module with most parameters. Where several of its class train, as the chunks of an
interleaved pipeline do, it is all of them together, and the batch is the input of the one that looks tokens up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from presim.capture.script.parameters import elements, model_elements, own_part


class Batch:
    """Asked around each call of an outermost module; `step_ends` after each optimizer step."""

    def __init__(self) -> None:
        self.tokens = 0
        self.samples = 0
        self.steps_with_input = 0  # a step that replays a CUDA graph calls no module
        self._looks_up: dict[int, bool] = {}  # id(module) -> whether it embeds tokens
        self._parts: dict[int, tuple[int, int]] = {}  # of those that are the model: parameters, and this rank's of them
        self._held: dict[int, int] = {}  # id(parameter) -> id of the part that holds it
        self._most = 0  # parameters of the largest module
        self._class = ""  # its class
        self._counted = 0  # id of the module whose inputs are the batch
        self._embeds = False  # that module takes tokens or their positions
        self._trains = False  # that module ran where gradients are wanted: what runs without them evaluates
        self._input_before = 0  # tokens and samples when the last step ended
        self._first: tuple[int, int] | None = None  # tokens and samples of the first step, while no other had any

    @property
    def parameters(self) -> int:
        """Of the model, over all ranks that share its parts."""
        return sum(whole for whole, _ in self._parts.values())

    @property
    def parameters_local(self) -> int:
        """What this rank holds of them."""
        return sum(local for _, local in self._parts.values())

    def enter(self, module: nn.Module, parameters: list[nn.Parameter]) -> None:
        """An outermost module is called; ``parameters``: all of it."""
        total = model_elements(module)
        if self._is_rather_counted(module, total):
            self._count(module, total)
        if self._parts.get(id(module), (-1,))[0] >= total:  # fewer where some are gathered for the next micro-batch
            return
        if id(module) == self._counted or self._is_a_part_more(module, parameters):
            self._parts[id(module)] = total, sum(elements(own_part(parameter)) for parameter in parameters)
            self._held.update((id(parameter), id(module)) for parameter in parameters)

    def _is_rather_counted(self, module: nn.Module, total: int) -> bool:
        if id(module) not in self._looks_up:
            self._looks_up[id(module)] = _looks_up(module)
        if self._parts and type(module).__name__ == self._class:
            looks_up, counted_does = self._looks_up[id(module)], self._looks_up[self._counted]
            if looks_up != counted_does:
                return looks_up
        return total > self._most or (total == self._most and self._trains_at_last(module))

    def _trains_at_last(self, module: nn.Module) -> bool:
        """Whether this is what a program trains that had another wrapper of the same model evaluate first."""
        return torch.is_grad_enabled() and not self._trains and id(module) != self._counted

    def _count(self, module: nn.Module, total: int) -> None:
        if type(module).__name__ != self._class or not self._trains:  # another model, or one that was evaluated before
            self._parts, self._held = {}, {}
        self._class = type(module).__name__
        self._counted = id(module)
        self._embeds = any(type(part).__name__.endswith("Embedding") for part in module.modules())
        self._most = max(total, self._most)
        self._trains = False
        self._count_anew()

    def _is_a_part_more(self, module: nn.Module, parameters: list[nn.Parameter]) -> bool:
        """Whether it is a chunk beside the one that is counted: of the same class, trained, and no part of another."""
        if type(module).__name__ != self._class or not torch.is_grad_enabled():
            return False
        trains = any(parameter.requires_grad for parameter in parameters)
        return trains and all(self._held.get(id(one), id(module)) == id(module) for one in parameters)

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tokens and samples of one call: of its first integer tensor [batch, sequence], else its first tensor.

        Of a program that trains, the calls that train: an evaluation between two steps is no part of their batch.
        """
        if id(module) != self._counted:
            return
        if torch.is_grad_enabled() and not self._trains:
            self._trains = True
            self._count_anew()
        if self._trains and not torch.is_grad_enabled():
            return
        found = [tensor for tensor in (*tensors(args), *tensors(kwargs.values())) if tensor.dim() > 0]
        ids = [tensor for tensor in found if tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32)]
        ids = ids if self._embeds else []  # a graph's edges, too, are two rows of integers
        if found:
            self.samples += (ids or found)[0].shape[0]
        if ids:
            self.tokens += ids[0].numel()

    def _count_anew(self) -> None:
        self.tokens = self.samples = self.steps_with_input = self._input_before = 0
        self._first = None

    def step_ends(self) -> None:
        """Note whether the batch was seen in this step.

        The first one's is forgotten when another had one: in it a pipeline's schedule also runs its stages for shapes.
        """
        if self.samples + self.tokens == self._input_before:
            return
        if self._first is not None:
            self.tokens, self.samples = self.tokens - self._first[0], self.samples - self._first[1]
            self._first = None
        else:
            self.steps_with_input += 1
            if self.steps_with_input == 1:
                self._first = self.tokens, self.samples
        self._input_before = self.samples + self.tokens


def _looks_up(module: nn.Module) -> bool:
    """Whether tokens are embedded in it: rotary embeddings, which all chunks have, look nothing up."""
    names = {type(part).__name__ for part in module.modules()}
    return any(name.endswith("Embedding") and "Rotary" not in name for name in names)


def tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """All tensors in arguments, however nested."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from tensors(value.values())
