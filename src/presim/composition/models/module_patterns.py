"""Names that checkpoints give a layer's modules, and the patterns by which they list modules."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

_LISTS = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "llm_int8_skip_modules",
    "modules_to_not_quantize",
)
# Names under which checkpoints list a layer; a class in transformers may have another one.
_PREFIXES = (
    "model.layers", "model.language_model.layers", "language_model.model.layers", "language_model.layers",
    "backbone.layers", "layers", "transformer.h",
)  # fmt: skip
_SPELLINGS = (  # of modules in transformers' classes, and in checkpoints whose tensors the classes rename
    ("mlp.", "block_sparse_moe."), ("mlp.", "ffn."), ("self_attn.", "attn."), ("feed_forward.", "mlp."),
    ("self_attn.indexer.", "self_attn.index_"),
    ("mlp.shared_experts.", "block_sparse_moe.shared_experts."), ("mlp.shared_experts.", "ffn.shared_experts."),
    ("mlp.experts.", "feed_forward.experts."),
)  # fmt: skip
# Names of experts' products in checkpoints of the kind of Mixtral's and MiniMax's
_MIXTRAL = {"gate_up_proj": "w1", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
# Whatever wraps a decoder, its list of layers is the same; encoders' lists have other words in front of them.
_DECODER = re.compile(
    r"^(?:(?:model|language_model|text_model|llm|thinker|transformer|backbone|decoder|gpt_neox)\.)*(?:layers|h|blocks)\."
)


def names_of(module: str) -> tuple[str, ...]:
    """Names that a checkpoint may give a module; stacked experts are those of the first one."""
    index, _, name = module.partition(".")
    parts = {name, name.replace("gate_up_proj", "gate_proj"), name.replace("qkv_proj", "q_proj")}
    if match := re.fullmatch(r"(.*experts)\.(gate_up_proj|down_proj|up_proj|gate_proj)", name):
        first = f"{match[1]}.0"
        parts |= {match[1], f"{first}.{match[2].replace('gate_up', 'gate')}", f"{first}.{_MIXTRAL[match[2]]}"}
    parts |= {part.replace(ours, theirs, 1) for part in tuple(parts) for ours, theirs in _SPELLINGS if ours in part}
    return tuple(f"{prefix}.{index}.{part}" for prefix in _PREFIXES for part in parts)


def matches(names: tuple[str, ...], pattern: str) -> bool:
    """Whether a pattern fits a module by one of its names: "re:" and an expression, wildcards, or parts of a name."""
    if pattern.startswith("re:"):
        return any(re.match(pattern[3:], name) for name in names)
    pattern = _DECODER.sub("model.layers.", pattern)
    if "*" in pattern:
        return any(fnmatch.fnmatchcase(name, form) for name in names for form in (pattern, f"{pattern}.*"))
    return any(f".{pattern.strip('.')}." in f".{name}." for name in names)


def listed(quantization: Mapping[str, Any]) -> list[str]:
    """Patterns of modules that stay in 16 bits."""
    lists = [quantization.get(key) or [] for key in _LISTS]
    return [str(pattern) for patterns in lists if isinstance(patterns, list) for pattern in patterns]


def only_listed(quantization: Mapping[str, Any]) -> list[str]:
    """Modules that alone are quantised (`modules_in_block_to_quantize`, flat or in lists); empty: all."""
    entries = quantization.get("modules_in_block_to_quantize") or []
    return [str(name) for entry in entries for name in (entry if isinstance(entry, list) else [entry])]


def bits_of(quantization: Mapping[str, Any], module: str, default_bits: Any) -> Any:
    """Bits of a module's weights: the first rule's that fits, 16 if it leaves the module out, or else ``default_bits``.

    Rules: GPTQModel's ``dynamic`` (regular expressions; "-:" before one leaves modules out, "+:" or nothing does not)
    and AutoRound's ``extra_config`` (names or regular expressions).
    """
    names = names_of(module)
    for rule, entry in _mapping(quantization, "dynamic").items():
        if any(re.search(rule[2:] if rule[:2] in ("-:", "+:") else rule, name) for name in names):
            return 16 if rule.startswith("-:") else entry.get("bits", default_bits)
    rules = _mapping(quantization, "extra_config")
    for rule, entry in rules.items():
        if matches(names, rule) or ("*" in rule and any(re.search(rule, name) for name in names)):
            return entry.get("bits", default_bits)
    return default_bits


def _mapping(quantization: Mapping[str, Any], key: str) -> Mapping[str, Mapping[str, Any]]:
    rules = quantization.get(key)
    return rules if isinstance(rules, Mapping) else {}
