"""What mixes the tokens of a layer, read from a module by the names and shapes of its parts."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from presim.composition.models.decoder_layers import (
    Attention,
    Compressed,
    DeltaNet,
    Indexer,
    Latent,
    LinearAttention,
    Mamba,
    Mixer,
    ShortConvolution,
)
from presim.composition.models.export.refusal import Refusal

_QUERY = ("q_proj", "query", "q", "wq")
_KEY = ("k_proj", "key", "k", "wk")
_VALUE = ("v_proj", "value", "v", "wv")
_FUSED = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "qkv", "wqkv", "att_proj", "W_pack")
_OUT = ("o_proj", "out_proj", "dense", "c_proj", "wo", "attn_out", "out")
_GATE = ("g_proj", "gate_proj", "output_gate")
_SOFTMAX_FREE = ("Lightning", "LinearAttention")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A mixer and the names of the linear layers that belong to it, within its module."""

    mixer: Mixer
    linears: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Context:
    """The decoder's config and the layer's position."""

    config: Any
    index: int

    @property
    def layer_config(self) -> Any:
        """The config of the layer where layers differ in sizes (Step-3.5), else the decoder's."""
        configs = getattr(self.config, "per_layer_config", None)
        return configs[self.index] if configs else self.config

    def size(self, module: torch.nn.Module, *names: str, default: int | None = None) -> int:
        """The first number among a module's attributes and the config's keys."""
        for holder in (module, self.layer_config):
            for name in names:
                value = getattr(holder, name, None)
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        if default is not None:
            return default
        raise Refusal(f"has a layer {type(module).__name__} whose {names[0]} is not known")

    @property
    def layer_type(self) -> str:
        """The config's word for the layer, if it has one."""
        types = getattr(self.config, "layer_types", None)
        return str(types[self.index]) if isinstance(types, Sequence) and len(types) > self.index else ""


def linears(module: torch.nn.Module) -> dict[str, tuple[int, int]]:
    """(inputs, outputs) of the linear layers that a module has itself."""
    return {name: sizes for name, part in module.named_children() if (sizes := linear(part)) is not None}


def linear(module: torch.nn.Module) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear layer; None for other modules."""
    weight = getattr(module, "weight", None)
    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    if isinstance(weight, torch.Tensor) and weight.dim() == 2 and hasattr(module, "output_size"):  # vLLM's
        return int(weight.shape[1]), int(weight.shape[0])
    if type(module).__name__ == "Conv1D" and weight is not None:
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def read(module: torch.nn.Module, context: Context) -> Claim | None:
    """The mixer that a module is; None if it is none.

    Raises:
        Refusal: it is one whose sizes do not fit each other.
    """
    if "CrossAttention" in type(module).__name__:
        raise Refusal(f"attends to the outputs of an encoder ({type(module).__name__}), which presim does not serve")
    parts = linears(module)
    names = {name for name, _ in module.named_children()} | {name for name, _ in module.named_parameters(recurse=False)}
    for is_one, reader in _READERS:
        if is_one(module, names):
            return reader(module, parts, context)
    return None


def _is_latent(module: torch.nn.Module, names: set[str]) -> bool:
    return "kv_b_proj" in names


def _is_compressed(module: torch.nn.Module, names: set[str]) -> bool:
    return {"q_a_proj", "kv_proj", "o_a_proj", "o_b_proj"} <= names


def _is_delta_net(module: torch.nn.Module, names: set[str]) -> bool:
    return hasattr(module, "conv_kernel_size") and (hasattr(module, "num_v_heads") or "forget_gate" in names)


def _is_mamba(module: torch.nn.Module, names: set[str]) -> bool:
    return {"A_log", "in_proj", "out_proj"} <= names


def _is_short_convolution(module: torch.nn.Module, names: set[str]) -> bool:
    return {"conv", "in_proj", "out_proj"} <= names and "A_log" not in names


def _is_linear_attention(module: torch.nn.Module, names: set[str]) -> bool:
    return any(word in type(module).__name__ for word in _SOFTMAX_FREE) and _named(names, _OUT) is not None


def _is_attention(module: torch.nn.Module, names: set[str]) -> bool:
    return _named(names, _OUT) is not None and (_named(names, _QUERY) or _named(names, _FUSED)) is not None


def _named(names: set[str] | dict[str, Any], choices: Sequence[str]) -> str | None:
    return next((name for name in choices if name in names), None)


def _attention(module: torch.nn.Module, parts: dict[str, tuple[int, int]], context: Context) -> Claim:
    config = context.layer_config
    query_heads = context.size(config, "num_attention_heads", "n_head", "n_heads")
    head_dim = context.size(
        module, "head_dim", "head_size", "d_head", "attention_head_size", default=config.hidden_size // query_heads
    )
    value_dim = context.size(module, "v_head_dim", default=head_dim)
    out = _named(parts, _OUT)
    if out is None:
        raise Refusal(f"has attention {type(module).__name__} without an output projection")
    heads = _whole(parts[out][0], value_dim, module)
    query, key, value, fused, gate = (_named(parts, names) for names in (_QUERY, _KEY, _VALUE, _FUSED, _GATE))
    gated = gate is not None and parts[gate][1] == heads * value_dim
    reuses = bool(getattr(module, "is_kv_shared_layer", False))
    if fused is not None:
        kv_heads = _whole(parts[fused][1] - heads * head_dim, head_dim + value_dim, module)
    else:
        assert query is not None
        gated = gated or parts[query][1] == 2 * heads * head_dim
        groups = context.size(module, "num_key_value_groups", default=1)
        kv_heads = heads // groups if key is None else _whole(parts[key][1], head_dim, module)
    if kv_heads < 1 or heads % kv_heads:
        raise Refusal(f"has {kv_heads} KV heads, which do not divide its {heads} heads")
    window, chunked = _window(module, context)
    scorer = getattr(module, "indexer", None)
    mixer = Attention(
        heads, kv_heads, head_dim, value_dim, window, chunked, gated, _norms_all_heads(module, heads * head_dim),
        reuses, fused is not None or value is not None or reuses,
        None if scorer is None else _block_indexer(scorer, context),
    )  # fmt: skip
    of_scorer = [f"indexer.{name}" for name in linears(scorer)] if scorer is not None else []
    return Claim(mixer, frozenset(filter(None, (query, key, value, fused, out, gate if gated else None, *of_scorer))))


def _whole(elements: int, per_head: int, module: torch.nn.Module) -> int:
    if elements % per_head:
        raise Refusal(f"has {type(module).__name__} with {elements} elements in heads of {per_head}: no whole number")
    return elements // per_head


def _norms_all_heads(module: torch.nn.Module, width: int) -> bool:
    norm = getattr(module, "q_norm", None) or getattr(module, "q_layernorm", None)
    weight = getattr(norm, "weight", None)
    return weight is not None and weight.dim() == 1 and weight.numel() == width


def _window(module: torch.nn.Module, context: Context) -> tuple[int, bool]:
    """(tokens, whether they are chunks): by the layer's type where the class has types, else by what its code reads."""
    config, kind = context.config, context.layer_type
    window = getattr(module, "sliding_window", None) or getattr(config, "sliding_window", None)
    window = window or getattr(module, "window_size", None) or getattr(config, "window_size", None)
    if isinstance(window, list | tuple):
        window = next((size for size in window if isinstance(size, int) and size > 0), 0)
    if "chunked" in kind:
        return int(config.attention_chunk_size), True
    if kind:
        return int(window or 0) if "sliding" in kind or kind == "local" else 0, False
    kernel: Any = getattr(module, "attn", None)
    if hasattr(kernel, "sliding_window"):  # vLLM's
        return int(kernel.sliding_window or 0), False
    local = getattr(module, "attention_type", None) == "local" or getattr(module, "is_sliding", None)
    if local is not None and (local or hasattr(module, "is_sliding")):
        return int(window or 0) if local else 0, False
    reads = "create_sliding_window_causal_mask" in inspect.getsource(sys.modules[type(module).__module__])
    return int(getattr(config, "sliding_window", None) or 0) if reads else 0, False


_EXPANDED = ("minicpm3",)  # vLLM 0.33, model_executor/models/minicpm3.py


def _latent(module: torch.nn.Module, parts: dict[str, tuple[int, int]], context: Context) -> Claim:
    heads = context.size(module, "num_heads", "num_attention_heads")
    rank, nope = context.size(module, "kv_lora_rank"), context.size(module, "qk_nope_head_dim")
    rope, value = context.size(module, "qk_rope_head_dim"), context.size(module, "v_head_dim")
    query_rank = parts["q_a_proj"][1] if "q_a_proj" in parts else 0
    scorer = getattr(module, "indexer", None)
    indexer = _indexer(scorer, context) if scorer is not None else None
    sparse = context.size(module, "index_topk", default=0)
    expanded = getattr(context.config, "model_type", "") in _EXPANDED
    mixer = Latent(heads, query_rank, rank, nope, rope, value, indexer, sparse, expanded)
    linear_names = {"q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "kv_a_proj"}
    if scorer is not None:
        linear_names |= {f"indexer.{name}" for name in linears(scorer)}
    return Claim(mixer, frozenset(linear_names))


def _block_indexer(module: torch.nn.Module, context: Context) -> Indexer:
    """Of attention to the blocks of keys with the highest scores."""
    blocks, size = context.size(module, "topk_blocks"), context.size(module, "block_size")
    return Indexer(context.size(module, "num_heads"), context.size(module, "head_dim"), blocks * size)


def _indexer(module: torch.nn.Module, context: Context) -> Indexer:
    heads = context.size(module, "n_heads", "num_heads", "index_n_heads")
    return Indexer(heads, context.size(module, "head_dim", "index_head_dim"), context.size(module, "index_topk"))


def _compressed(module: torch.nn.Module, parts: dict[str, tuple[int, int]], context: Context) -> Claim:
    compressor = getattr(module, "compressor", None)
    indexer = getattr(compressor, "indexer", None)
    ratio = int(compressor.compress_rate) if compressor is not None else 0
    config = context.config
    mixer = Compressed(
        context.size(module, "num_heads"), context.size(module, "head_dim"), config.q_lora_rank, config.o_groups,
        config.o_lora_rank, int(config.sliding_window), ratio,
        _indexer(indexer, context) if indexer is not None else None,
    )  # fmt: skip
    names = {name for name, part in module.named_modules() if linear(part) is not None}
    return Claim(mixer, frozenset(names))


def _delta_net(module: torch.nn.Module, parts: dict[str, tuple[int, int]], context: Context) -> Claim:
    names = {name for name, part in module.named_modules() if linear(part) is not None}
    kernel = context.size(module, "conv_kernel_size")
    if hasattr(module, "num_v_heads"):
        key_heads, value_heads = context.size(module, "num_k_heads"), context.size(module, "num_v_heads")
        dims = context.size(module, "head_k_dim"), context.size(module, "head_v_dim")
        return Claim(DeltaNet(key_heads, value_heads, *dims, kernel), frozenset(names))
    heads, dim = context.size(module, "num_heads"), context.size(module, "head_dim")
    return Claim(DeltaNet(heads, heads, dim, dim, kernel, (dim, dim)), frozenset(names))


def _mamba(module: torch.nn.Module, parts: dict[str, tuple[int, int]], context: Context) -> Claim:
    state = context.size(module, "ssm_state_size", "mamba_d_state", "state_size")
    kernel = context.size(module, "conv_kernel_size", "conv_kernel", "mamba_d_conv")
    inner = parts["out_proj"][0]
    if "x_proj" in parts:
        rank = context.size(module, "time_step_rank", "mamba_dt_rank", default=parts["x_proj"][1] - 2 * state)
        return Claim(Mamba(inner, state, kernel, step_rank=rank), frozenset(parts))
    heads = int(module.A_log.numel())  # type: ignore[operator]
    groups = context.size(module, "n_groups", "num_groups", default=1)
    return Claim(Mamba(inner, state, kernel, heads, groups), frozenset(parts))


def _short_convolution(module: torch.nn.Module, parts: dict[str, tuple[int, int]], context: Context) -> Claim:
    kernel = context.size(module, "conv_kernel_size", "L_cache", "conv_L_cache")
    return Claim(ShortConvolution(parts["out_proj"][0], kernel), frozenset(parts))


def _linear_attention(module: torch.nn.Module, parts: dict[str, tuple[int, int]], context: Context) -> Claim:
    head_dim = context.size(module, "head_dim")
    out = _named(parts, _OUT)
    assert out is not None
    return Claim(LinearAttention(_whole(parts[out][0], head_dim, module), head_dim), frozenset(parts))


Reader = Callable[[torch.nn.Module, dict[str, tuple[int, int]], Context], Claim]
_READERS: tuple[tuple[Callable[[torch.nn.Module, set[str]], bool], Reader], ...] = (
    (_is_latent, _latent),
    (_is_compressed, _compressed),
    (_is_delta_net, _delta_net),
    (_is_mamba, _mamba),
    (_is_short_convolution, _short_convolution),
    (_is_linear_attention, _linear_attention),
    (_is_attention, _attention),
)


def claims(module: torch.nn.Module, context: Context, prefix: str = "") -> Iterator[tuple[str, Claim]]:
    """(name, mixer) of all mixers within a layer."""
    for name, part in module.named_children():
        claim = read(part, context)
        if claim is not None:
            yield prefix + name, claim
        elif linear(part) is None:
            yield from claims(part, context, f"{prefix}{name}.")
