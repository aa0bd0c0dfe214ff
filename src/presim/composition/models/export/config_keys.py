"""Keys of a config: sizes that it must have, and those that no code reads."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from presim.composition.models.export.refusal import Refusal

# Model types under which checkpoints of another family's classes are published; engines go by the architecture.
RENAMED_TYPES = ("kimi_k2", "deepseek_ref", "deepseek_v32", "deepseek_v3", "internlm3", "minimax_m1", "mimo")
_REQUIRED = ("hidden_size", "num_hidden_layers")
_POSITIVE = (
    *_REQUIRED,
    "vocab_size",
    "num_attention_heads",
    "head_dim",
    "num_key_value_heads",
    "intermediate_size",
    "max_position_embeddings",
)
_USUAL = (  # sizes that few configs leave out
    "num_attention_heads", "intermediate_size", "vocab_size", "sliding_window", "q_lora_rank",
)  # fmt: skip
_INSTEAD = {
    "num_hidden_layers": ("layers_block_type", "hybrid_override_pattern", "layer_types", "num_layers")
}  # they say it, too
_OTHER_NAMES = {"intermediate_size": ("ffn_hidden_size",), "vocab_size": ("padded_vocab_size",)}  # ChatGLM's
_LARGEST = 1 << 31
_MOST_LAYERS = 2000  # ten times as many as any published model has
_COUNTS = re.compile(
    r"^(num_.*(heads|layers|experts|tok)|(hidden|intermediate|vocab|moe_intermediate)_size|head_dim|n_(embd|head|layer|inner)|max_position_embeddings|.*_lora_rank)$"
)
# Names of keys that could change layers
_STRUCTURE = re.compile(
    r"layer|interleav|expert|moe|pattern|sliding|window|heads|hidden_size|intermediate|hybrid|block|freq|mlp|kv_|"
    r"lora_rank|mamba|ssm|conv|attn_type|ffn|latent|index_|compress|share|cla_|head_dim"
)
_SAID = {"zero_expert_type": "identity"}  # what is taken for granted: LongCat's idle experts return their input
_SAME = {"moe_intermediate_size": "intermediate_size"}  # names of one size (Hunyuan)
# Such names that change no layer: dropout, initialisation, norms' constants, training, scales and their like.
_HARMLESS = re.compile(
    r"drop|init|norm|eps|loss|coef|bias|scale|scaling|scor|rope|rotary|theta|router|aux|jitter|z_loss|capacity|"
    r"nextn|mtp|use_cache|chunk_size|_act$|activation|ep_size|topk_method|group|dtype|implementation|kernels|"
    r"pretraining|parallel|prob|token|version|max_window_layers|quant|cache|residual|num_blocks_per|checkpoint|"
    r"image|video|vision|audio|output_|return_|start_layer|end_layer|layernorm_"
)


def check_sizes(config: Mapping[str, Any], config_class: Any) -> None:
    """Refuse a config whose text part lacks its sizes, or has one that no model can have.

    Raises:
        Refusal: names the key.
    """
    text = text_part(config)
    renamed = {**getattr(config_class, "attribute_map", {}), **_text_aliases(config_class)}
    for key in _REQUIRED:
        names = (key, renamed.get(key, key), *_INSTEAD.get(key, ()))
        if all(text.get(name) is None and config.get(name) is None for name in names):
            raise Refusal(f"has no {names[1]}; give the config.json published with the weights")
    for part in (config, text):
        for key, value in part.items():
            if _COUNTS.search(key) and isinstance(value, int | float):
                _check_size(key, value)


def _check_size(key: str, value: float) -> None:
    largest = _MOST_LAYERS if key in ("num_hidden_layers", "n_layer", "num_layers") else _LARGEST
    is_whole = not isinstance(value, bool) and value == int(value)
    if not is_whole or not 0 <= value <= largest or (value < 1 and key in _POSITIVE):
        raise Refusal(f"has {key} = {value}; it must be a whole number from 1 to {largest:,}")


def _text_aliases(config_class: Any) -> dict[str, str]:
    part = getattr(config_class, "sub_configs", {}).get("text_config")
    aliases: dict[str, str] = getattr(part, "attribute_map", {})
    return aliases


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the decoder; the config itself if it has no parts."""
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        if isinstance(part := config.get(key), dict):
            return text_part(part)
    return config


def unread(raw: Mapping[str, Any], config: Any, model: Any, also_read: str = "") -> tuple[str, ...]:
    """Sentences about keys that look as if they changed layers and that the class does not read.

    ``also_read``: source of code that has read the config besides the class.

    Raises:
        Refusal: such a key says something of each layer.
    """
    text = config.get_text_config(decoder=True)
    source = "".join(_source(part) for part in {type(config), type(text), type(model)}) + also_read
    layers = getattr(text, "num_hidden_layers", 0)
    notes = []
    for key, value in _leaves(raw):
        is_by_layer = isinstance(value, list | str) and len(value) >= max(layers, 2) and len({*map(str, value)}) > 1
        if isinstance(value, list) and value and not is_by_layer:
            value = value[0]  # the same for every layer
        if not _STRUCTURE.search(key) or _HARMLESS.search(key) or value in (None, False, 0, 1, -1, [], {}, ""):
            continue
        if re.search(rf"\b{re.escape(key)}\b", source) or hasattr(type(config), key) or _is_said(key, value, raw, text):
            continue
        if is_by_layer and _are_experts_layers(value, model):
            continue
        if is_by_layer:
            raise Refusal(
                f"has {key}, which says something of each layer and which {type(model).__name__} of transformers does "
                "not read; its layers are not known"
            )
        notes.append(
            f"The config's {key} = {str(value)[:40]} is not read by {type(model).__name__}: no layer follows it."
        )
    return tuple(notes)


def _are_experts_layers(flags: list[Any] | str, model: Any) -> bool:
    """Whether a flag for each layer says which layers have experts, as the class's layers have them."""
    names = (name for name, _ in model.named_modules())
    matches = (re.search(r"\blayers\.(\d+)\.(?:.*\.)?experts$", name) for name in names)
    with_experts = {int(match[1]) for match in matches if match}
    return bool(with_experts) and list(flags) == [index in with_experts for index in range(len(flags))]


def _is_said(key: str, value: Any, raw: Mapping[str, Any], config: Any) -> bool:
    """Whether it repeats what the class takes for granted, as in a longer name of a key that it reads."""
    if _SAID.get(key) == value:
        return True
    same_size = _SAME.get(key, key.removeprefix("swa_").removesuffix("_size"))
    repeats = same_size != key and value == getattr(config, same_size, None)  # a config keeps any key as an attribute
    if repeats or raw.get(f"use_{key.split('_')[0]}") is False:
        return True
    return any(key.endswith(f"_{name}") and getattr(config, name, None) == value for name in ("head_dim", "num_layers"))


def check_taken(raw: Mapping[str, Any], config: Any) -> None:
    """Refuse sizes that the class does not take from where the file has them.

    Raises:
        Refusal: names the key.
    """
    text = config.get_text_config(decoder=True)
    for key in (*_REQUIRED, "num_attention_heads", "vocab_size"):
        size, taken_size = text_part(raw).get(key), getattr(text, key, None)
        if size is not None and taken_size is not None and size != taken_size:
            raise Refusal(
                f"has {key} = {size}, where {type(config).__name__} of transformers does not read it (it takes "
                f"{taken_size}); give the config.json published with the weights"
            )


def defaults(raw: Mapping[str, Any], config: Any) -> tuple[str, ...]:
    """A sentence about sizes that the file leaves to the class."""
    text = config.get_text_config(decoder=True)
    aliases = getattr(type(text), "attribute_map", {})
    config_keys = {*raw, *text_part(raw)}
    names = [name for name in _USUAL if not {name, aliases.get(name, name), *_OTHER_NAMES.get(name, ())} & config_keys]
    sizes = {name: getattr(text, name, None) for name in names}
    left_out = [f"{name} = {size:,}" for name, size in sizes.items() if isinstance(size, int) and size]
    if not left_out:
        return ()
    return (f"The config leaves {', '.join(left_out)} to the defaults of {type(text).__name__}.",)


def _leaves(raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for part in dict.fromkeys((id(raw), id(text_part(raw)))):
        config = raw if part == id(raw) else text_part(raw)
        yield from ((key, value) for key, value in config.items() if not isinstance(value, dict))


def _source(of: Any) -> str:
    """Source of the module of a class and of its base classes' modules in transformers' models."""
    modules = {base.__module__ for base in of.__mro__ if ".models." in base.__module__}
    return "".join(inspect.getsource(sys.modules[name]) for name in sorted(modules))
