"""The description of an instantiated model: its list of layers, each with all its parameters."""

from __future__ import annotations

from typing import Any

import torch

from presim.composition.models.decoder_layers import Experts, Layer, Part, Weight
from presim.composition.models.description import Model
from presim.composition.models.export import context_length, feed_forwards, mixers
from presim.composition.models.export.classes import Built
from presim.composition.models.export.encoders import is_encoder
from presim.composition.models.export.mixers import Context
from presim.composition.models.export.refusal import Refusal


def describe(built: Built) -> Model:
    """The description.

    Raises:
        Refusal: a layer has parts that presim does not know.
    """
    path, layers = _layers(built)
    seen: set[int] = set()
    kinds: dict[Layer, int] = {}
    order = []
    for index, layer in enumerate(layers):
        kind = _layer(layer, Context(built.config, index), seen)
        order.append(kinds.setdefault(kind, len(kinds)))
    if not any(kind.mixers for kind in kinds):
        raise Refusal(f"has layers {type(layers[0]).__name__}, in which presim finds no attention and no states")
    config = built.config
    longest, default_length = context_length.lengths(config)
    return Model(
        name="",
        architecture=built.architecture,
        origin=built.origin,
        hidden=int(config.hidden_size),
        vocabulary=int(config.vocab_size),
        longest=longest,
        default_length=default_length,
        kinds=tuple(kinds),
        order=tuple(order),
        outside=tuple(_outside(built.model, path)),
        tied=_is_tied(built.model),
        state_type=_state_type(config, tuple(kinds)),
        notes=built.notes,
    )


def _layers(built: Built) -> tuple[str, torch.nn.ModuleList]:
    """The decoder's list of layers, and its name."""
    counts = {getattr(built.config, name, None) for name in ("num_hidden_layers", "num_layers")}
    lists = [
        (name, module)
        for name, module in built.model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) in counts and not is_encoder(name)
    ]
    lists = [(name, module) for name, module in lists if sum(p.numel() for p in module.parameters())]
    if not lists:
        raise Refusal(
            f"has {type(built.model).__name__} without a list of {max(filter(None, counts))} layers, which presim does "
            "not know"
        )
    return max(lists, key=lambda entry: sum(parameter.numel() for parameter in entry[1].parameters()))


def _layer(layer: torch.nn.Module, context: Context, seen: set[int]) -> Layer:
    mixer_claims = dict(mixers.claims(layer, context))
    prefixes = frozenset(mixer_claims)
    claims = feed_forwards.claims(layer, context, prefixes)
    kind_by_name: dict[str, Part] = {}
    for prefix, claim in mixer_claims.items():
        kind_by_name |= {f"{prefix}.{name}.weight": "mixer" for name in claim.linears}
    for feed_forward in claims:
        part: Part = "experts" if isinstance(feed_forward.part, Experts) else "dense"
        if part == "dense" and getattr(feed_forward.part, "shared", False):
            part = "shared"
        kind_by_name |= dict.fromkeys(feed_forward.parameters, part)
    counts = {claim.part.count + claim.part.idle for claim in claims if isinstance(claim.part, Experts)}
    weights = []
    for name, parameter in layer.named_parameters():
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        part = kind_by_name.get(name) or _other(layer, name, parameter, counts, context)
        weights.append(Weight(name, _stored_shape(parameter, part, context), part))
    kind = Layer(
        tuple(claim.mixer for claim in mixer_claims.values()), tuple(claim.part for claim in claims), tuple(weights)
    )
    if not kind.mixers and not kind.feed_forwards and any(weight.part != "small" for weight in weights):
        raise Refusal(f"has layers {type(layer).__name__}, of which presim knows no part")
    return kind


def _stored_shape(parameter: torch.nn.Parameter, part: Part, context: Context) -> tuple[int, ...]:
    """The shape without rows of experts that compute nothing, which a checkpoint does not have (LongCat)."""
    idle = int(getattr(context.config, "zero_expert_num", 0) or 0)
    routed = getattr(context.config, "n_routed_experts", 0)
    shape = tuple(parameter.shape)
    return (routed, *shape[1:]) if part == "experts" and idle and shape[0] == routed + idle else shape


def _other(
    layer: torch.nn.Module, name: str, parameter: torch.nn.Parameter, experts: set[int], context: Context
) -> Part:
    """The part of a parameter that belongs to no mixer and to no feed-forward."""
    owner = layer.get_submodule(name.rpartition(".")[0])
    if is_encoder(name):
        return "encoder"
    if parameter.dim() == 2 and parameter.shape[0] in experts:
        return "router"
    if mixers.linear(owner) is not None and parameter.dim() == 2:
        return "beside"
    largest = context.config.hidden_size * (context.config.hidden_size // 4 if parameter.dim() == 2 else 1)
    if parameter.dim() >= 2 and not isinstance(owner, torch.nn.Conv1d) and parameter.numel() > largest:
        raise Refusal(
            f"has a layer with the parameter {name} of shape {tuple(parameter.shape)}, which presim does not know"
        )
    return "small"


def _outside(model: torch.nn.Module, path: str) -> list[Weight]:
    weights = []
    for name, parameter in model.named_parameters():
        if name.startswith(f"{path}."):
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        part: Part = "small"
        if is_encoder(name.rpartition(".")[0]):
            part = "encoder"
        elif isinstance(owner, torch.nn.Embedding) or type(owner).__name__ == "VocabParallelEmbedding":
            part = "embedding"
        elif parameter.dim() == 2:
            part = "head" if "head" in name or name.startswith("embed_out") else "beside"
        weights.append(Weight(name, tuple(parameter.shape), part))
    return weights


def _is_tied(model: Any) -> bool:
    if not hasattr(model, "get_output_embeddings"):  # vLLM's
        return not any("head" in name for name, _ in model.named_parameters())
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    return inputs is not None and outputs is not None and inputs.weight is outputs.weight


def _state_type(config: Any, kinds: tuple[Layer, ...]) -> Any:
    """The type of recurrent states in vLLM 0.33: what the config asks for, else the model's own type.

    Nemotron-H's (model_executor/models/config.py) and Kimi's delta attention (`kda_state_dtype`) are of 32 bits.
    """
    for key in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        if (dtype := getattr(config, key, None)) is not None:
            return "float32" if str(dtype).endswith("float32") else "bf16"
    by_channel = any(getattr(mixer, "gate_ranks", ()) for kind in kinds for mixer in kind.mixers)
    return "float32" if by_channel or config.model_type == "nemotron_h" else "bf16"
