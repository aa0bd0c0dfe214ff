"""Count parameters, tokens and samples per step from calls of the outermost modules.

The model is the outermost module with the most parameters. If several modules of its class train, such as the chunks of
an interleaved pipeline, the model is all of them, and the batch is the input of the one with the token embedding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from presim.capture.script.parameters import elements, model_elements, own_part


class Batch:
    """Called around each call of an outermost module, and by `step_ends` after each optimizer step."""

    def __init__(self) -> None:
        self.tokens = 0
        self.samples = 0
        self.steps_with_input = 0  # a step that replays a CUDA graph calls no module
        self._embeds_tokens: dict[int, bool] = {}  # id(module) -> whether it embeds tokens
        self._parts: dict[
            int, tuple[int, int]
        ] = {}  # id(module) of the model's parts -> parameters in all, on this rank
        self._owner: dict[int, int] = {}  # id(parameter) -> id of the part that holds it
        self._largest = 0  # parameters of the largest module
        self._class = ""  # class name of the largest module
        self._counted = 0  # id of the module whose input is the batch
        self._embeds = False  # whether that module takes tokens or their positions
        self._trains = False  # whether that module ran with gradients enabled; without them it evaluates
        self._input_before = 0  # tokens and samples at the end of the last step
        self._first: tuple[int, int] | None = None  # tokens and samples of the first step, while no other step had any

    @property
    def parameters(self) -> int:
        """Parameters of the model, over all ranks that share its parts."""
        return sum(whole for whole, _ in self._parts.values())

    @property
    def parameters_local(self) -> int:
        """Parameters of the model that this rank holds."""
        return sum(local for _, local in self._parts.values())

    def enter(self, module: nn.Module, parameters: list[nn.Parameter]) -> None:
        """An outermost module is called; ``parameters``: all of its parameters."""
        total = model_elements(module)
        if self._should_count(module, total):
            self._count(module, total)
        if self._parts.get(id(module), (-1,))[0] >= total:  # fewer if some are gathered for the next micro-batch
            return
        if id(module) == self._counted or self._is_further_chunk(module, parameters):
            self._parts[id(module)] = total, sum(elements(own_part(parameter)) for parameter in parameters)
            self._owner.update((id(parameter), id(module)) for parameter in parameters)

    def _should_count(self, module: nn.Module, total: int) -> bool:
        if id(module) not in self._embeds_tokens:
            self._embeds_tokens[id(module)] = _embeds_tokens(module)
        if self._parts and type(module).__name__ == self._class:
            embeds, counted_embeds = self._embeds_tokens[id(module)], self._embeds_tokens[self._counted]
            if embeds != counted_embeds:
                return embeds
        return total > self._largest or (total == self._largest and self._starts_training(module))

    def _starts_training(self, module: nn.Module) -> bool:
        """Whether the program trains this module after it evaluated another wrapper of the same model."""
        return torch.is_grad_enabled() and not self._trains and id(module) != self._counted

    def _count(self, module: nn.Module, total: int) -> None:
        if type(module).__name__ != self._class or not self._trains:  # another model, or one that was only evaluated
            self._parts, self._owner = {}, {}
        self._class = type(module).__name__
        self._counted = id(module)
        self._embeds = any(type(part).__name__.endswith("Embedding") for part in module.modules())
        self._largest = max(total, self._largest)
        self._trains = False
        self._reset_counts()

    def _is_further_chunk(self, module: nn.Module, parameters: list[nn.Parameter]) -> bool:
        """Whether this is a further chunk of the model: of the same class, trained, and not part of another chunk."""
        if type(module).__name__ != self._class or not torch.is_grad_enabled():
            return False
        trains = any(parameter.requires_grad for parameter in parameters)
        return trains and all(self._owner.get(id(one), id(module)) == id(module) for one in parameters)

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Add tokens and samples of one call: of its first integer tensor [batch, sequence], else of its first tensor.

        If the program trains, only calls with gradients count, so that an evaluation between two steps is left out.
        """
        if id(module) != self._counted:
            return
        if torch.is_grad_enabled() and not self._trains:
            self._trains = True
            self._reset_counts()
        if self._trains and not torch.is_grad_enabled():
            return
        found = [tensor for tensor in (*tensors(args), *tensors(kwargs.values())) if tensor.dim() > 0]
        ids = [tensor for tensor in found if tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32)]
        ids = ids if self._embeds else []  # the edges of a graph are also two rows of integers
        if found:
            self.samples += (ids or found)[0].shape[0]
        if ids:
            self.tokens += ids[0].numel()

    def _reset_counts(self) -> None:
        self.tokens = self.samples = self.steps_with_input = self._input_before = 0
        self._first = None

    def step_ends(self) -> None:
        """Record whether this step had input.

        Once another step has input, the first step's input is dropped: in it, a pipeline's schedule also runs its
        stages to infer shapes.
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


def _embeds_tokens(module: nn.Module) -> bool:
    """Whether the module embeds tokens. Rotary embeddings, which all chunks have, do not count."""
    names = {type(part).__name__ for part in module.modules()}
    return any(name.endswith("Embedding") and "Rotary" not in name for name in names)


def tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    """All tensors in nested arguments."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors(value)
        elif isinstance(value, dict):
            yield from tensors(value.values())
