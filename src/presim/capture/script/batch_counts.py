"""Count parameters, tokens and samples from calls of the outermost modules.

The model is the outermost module with the most parameters. If several modules of its class train, such as the chunks of
an interleaved pipeline, the model is all of them, and the batch is the input of the one with the token embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from presim.capture.script.replaced_parameters import elements, model_elements, own_part


class OutermostCalls:
    """Called around each call of an outermost module.

    Args:
        on_input: called with the tokens and samples of each input of the model, and the tensor that has them.
        on_reset: called when another module turns out to be the model, or when it begins to train: earlier inputs do
            not count.
    """

    def __init__(
        self,
        on_input: Callable[[int, int, torch.Tensor], None] = lambda *counts: None,
        on_reset: Callable[[], None] = lambda: None,
    ) -> None:
        self.is_repeated = False  # whether the model is called with a batch that has been counted
        self.sample = ""  # how the samples were counted, as a clause
        self._on_input, self._on_reset = on_input, on_reset
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
        self._sequence_first = False  # whether a layer of that module took [sequence, batch, feature]

    @property
    def parameters(self) -> int:
        """Parameters of the model, over all ranks that share its parts."""
        return sum(count for count, _ in self._parts.values())

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
        self._trains = self._sequence_first = False
        self._on_reset()

    def _is_further_chunk(self, module: nn.Module, parameters: list[nn.Parameter]) -> bool:
        """Whether this is a further chunk of the model: of the same class, trained, and not part of another chunk."""
        if type(module).__name__ != self._class or not torch.is_grad_enabled():
            return False
        trains = any(parameter.requires_grad for parameter in parameters)
        return trains and all(self._owner.get(id(parameter), id(module)) == id(module) for parameter in parameters)

    def enter_layer(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        """A layer below an outermost module is called whose ``batch_first`` is False: it takes the sequence first."""
        self._sequence_first |= bool(args) and isinstance(args[0], torch.Tensor) and args[0].dim() == 3

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count tokens and samples of a call: of its first integer tensor [batch, sequence], else of its first tensor.

        The samples of a model whose layers take [sequence, batch, feature] are counted along the second dimension. If
        the program trains, only calls with gradients count, so that an evaluation between two steps is left out. A
        repeated batch does not count either.
        """
        if id(module) != self._counted:
            return
        if torch.is_grad_enabled() and not self._trains:
            self._trains = True
            self._on_reset()
        if self.is_repeated or (self._trains and not torch.is_grad_enabled()):
            return
        inputs = [tensor for tensor in (*tensors(args), *tensors(kwargs.values())) if tensor.dim() > 0]
        ids = [tensor for tensor in inputs if tensor.dim() == 2 and tensor.dtype in (torch.int64, torch.int32)]
        ids = ids if self._embeds else []  # the edges of a graph are also two rows of integers
        if inputs:
            batch = (ids or inputs)[0]
            dimension = int(self._sequence_first and batch.dim() > 1)
            mapped = _mapped_samples(batch)
            self.sample = _sample_clause(module, batch, dimension, mapped)
            self._on_input(mapped * ids[0].numel() if ids else 0, mapped * batch.shape[dimension], batch)


def _mapped_samples(tensor: torch.Tensor) -> int:
    """Tensors that this one stands for within `torch.vmap`, whose dimensions a module does not see; else 1."""
    if not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return 1
    inner = torch._C._functorch.get_unwrapped(tensor)
    is_mapped = torch._C._functorch.is_batchedtensor(tensor)
    mapped = inner.shape[torch._C._functorch.maybe_get_bdim(tensor)] if is_mapped else 1
    return mapped * _mapped_samples(inner)


def _sample_clause(module: nn.Module, batch: torch.Tensor, dimension: int, mapped: int) -> str:
    ordinal, kind = ("first", "second")[dimension], "integer tensor" if not batch.is_floating_point() else "tensor"
    shape = ", ".join(map(str, batch.shape))
    times = f", times the {mapped} that torch.vmap maps" if mapped > 1 else ""
    return f"the {ordinal} dimension of the {kind} [{shape}] that {type(module).__name__} takes{times}"


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
