"""Feed-forwards of a layer, read from its modules by the shapes of their parameters."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import torch

from presim.composition.models.decoder_layers import Dense, Experts, FeedForward
from presim.composition.models.export.encoders import is_encoder
from presim.composition.models.export.mixers import Context, linears
from presim.composition.models.export.refusal import Refusal

_CHOICES = (
    "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k", "moe_top_k", "top_k",
    "num_selected_experts", "experts_per_token",
)  # fmt: skip

Shape = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A feed-forward and the names of its parameters, within the layer."""

    part: FeedForward
    parameters: frozenset[str]


def claims(layer: torch.nn.Module, context: Context, mixers: frozenset[str]) -> list[Claim]:
    """All feed-forwards within a layer, outside its ``mixers``."""
    experts = list(_experts(layer, context, mixers))
    claimed = frozenset(name for claim in experts for name in claim.parameters)
    return [*experts, *_dense(layer, mixers, claimed, has_experts=bool(experts))]


def _outside(name: str, prefixes: frozenset[str]) -> bool:
    return not any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _experts(layer: torch.nn.Module, context: Context, mixers: frozenset[str]) -> Iterator[Claim]:
    """Experts: stacked parameters of three dimensions, or a list of equal modules."""
    stacks: dict[str, dict[str, Shape]] = {}
    for name, parameter in layer.named_parameters():
        owner = layer.get_submodule(name.rpartition(".")[0])
        shape = _stack_shape(owner, parameter)
        if shape is not None and _outside(name, mixers) and not is_encoder(name):
            path = name.split(".")[:-1]
            stack = ".".join(path[:-1] if name.endswith(".weight") else path)
            stacks.setdefault(stack, {})[name] = shape
    for shapes in stacks.values():
        yield _stacked(shapes, layer, context)
    for name, module in layer.named_modules():
        is_list = isinstance(module, torch.nn.ModuleList) and name.endswith("experts")
        if is_list and _outside(name, mixers) and not is_encoder(name):
            yield _listed(name, module, layer, context)


def _stack_shape(owner: torch.nn.Module, parameter: torch.nn.Parameter) -> Shape | None:
    """(experts, rows, columns) of a parameter of all experts; None for others."""
    count = getattr(owner, "moe_num_experts", None)
    if parameter.dim() == 2 and isinstance(count, int) and not isinstance(owner, torch.nn.Linear):
        rows, columns = parameter.shape
        return (count, rows // count, columns) if count > 1 and rows % count == 0 else None  # DBRX: one below another
    is_stack = parameter.dim() == 3 and not isinstance(owner, torch.nn.Conv1d) and parameter.shape[0] > 1
    return (parameter.shape[0], parameter.shape[1], parameter.shape[2]) if is_stack else None


def _stacked(shape_by_name: dict[str, Shape], layer: torch.nn.Module, context: Context) -> Claim:
    names, shapes = frozenset(shape_by_name), list(shape_by_name.values())
    idle = int(getattr(context.config, "zero_expert_num", 0) or 0)  # LongCat's class has a row for these, too
    count = min(shape[0] for shape in shapes)
    smallest = min(shapes, key=lambda shape: shape[1] * shape[2])
    matrix_elements = smallest[1] * smallest[2]
    matrices = sum(shape[1] * shape[2] for shape in shapes) / matrix_elements
    if any(shape[0] not in (count, count + idle) for shape in shapes) or matrices not in (2, 3):
        raise Refusal(f"has experts of parameters {sorted(names)} and shapes {shapes}, which presim does not know")
    hidden = context.config.hidden_size
    if hidden in smallest[1:]:
        width = smallest[1] * smallest[2] // hidden
    else:  # experts between projections: PyTorch's order is outputs, inputs
        down = [shape for name, shape in shape_by_name.items() if re.search("down|w2|output", name)]
        if not down:
            raise Refusal(f"has the parameters {sorted(names)} of shapes {shapes}, which presim does not know")
        hidden, width = down[0][1:]
    return Claim(_mixture(count, width, hidden, int(matrices), layer, context), names)


def _listed(name: str, module: torch.nn.ModuleList, layer: torch.nn.Module, context: Context) -> Claim:
    names = frozenset(f"{name}.{part}" for part, _ in module.named_parameters())
    sizes = list(linears(module[0]).values())
    hidden = context.config.hidden_size
    widths = {size for pair in sizes for size in pair} - {hidden} or {hidden}
    if len(widths) != 1 or len(sizes) not in (2, 3):
        raise Refusal(f"has experts {type(module[0]).__name__}, which presim does not know")
    return Claim(_mixture(len(module), widths.pop(), hidden, len(sizes), layer, context), names)


def _mixture(count: int, width: int, hidden: int, matrices: int, layer: torch.nn.Module, context: Context) -> Experts:
    choices = _choices(layer, context)
    idle = int(getattr(context.config, "zero_expert_num", 0) or 0)
    if not 1 <= choices <= count + idle:
        raise Refusal(f"chooses {choices} of {count} experts; it must be from 1 to {count}")
    return Experts(count, choices, width, hidden, matrices, idle)


def _choices(layer: torch.nn.Module, context: Context) -> int:
    for holder in (*layer.modules(), context.config):
        for name in _CHOICES:
            if name == "top_k" and holder is context.config:
                continue  # of sampling
            value: Any = getattr(holder, name, None)
            if isinstance(value, list | tuple) and len(value) > context.index:
                value = value[context.index]
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    raise Refusal("does not say how many experts a token chooses")


def _dense(
    layer: torch.nn.Module, mixers: frozenset[str], claimed: frozenset[str], *, has_experts: bool
) -> Iterator[Claim]:
    """Pairs of a projection up and one down, with or without a gate."""
    for name, module in layer.named_modules():
        is_claimed = bool(name) and any(parameter.startswith(f"{name}.") for parameter in claimed)
        if not _outside(name, mixers) or is_encoder(name) or is_claimed:
            continue
        parts = {part: sizes for part, sizes in linears(module).items() if _outside(_join(name, part), mixers)}
        down = _down(parts)
        if down is None or any(_join(name, f"{part}.weight") in claimed for part in parts):
            continue
        width, hidden = parts[down]
        ups = {part: sizes for part, sizes in parts.items() if part != down and sizes[0] == hidden}
        ups = {part: sizes for part, sizes in ups.items() if sizes[1] in (width, 2 * width)}
        matrices = 1 + sum(sizes[1] for sizes in ups.values()) // width
        if matrices not in (2, 3):
            continue
        if not name and has_experts:
            continue
        names = frozenset(_join(name, f"{part}.weight") for part in (*ups, down))
        shared = "shared" in name or (has_experts and "expert" in name)
        yield Claim(Dense(width, matrices, shared or has_experts), names)


def _down(parts: dict[str, tuple[int, int]]) -> str | None:
    """The projection whose inputs are the outputs of another one, and whose outputs are that one's inputs."""
    for name in reversed(parts):
        inputs, outputs = parts[name]
        ups = [sizes for other, sizes in parts.items() if other != name and sizes[0] == outputs]
        if any(sizes[1] in (inputs, 2 * inputs) for sizes in ups):
            return name
    return None


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
