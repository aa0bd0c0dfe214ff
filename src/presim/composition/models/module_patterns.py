"""Names that checkpoints give a layer's modules, and the patterns by which they list modules."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any

_LISTS = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "llm_int8_skip_modules",
    "modules_to_not_quantize",
    "exclude",
)
# Names under which checkpoints list a layer; a class in transformers may have another one.
_PREFIXES = (
    "model.layers", "model.language_model.layers", "language_model.model.layers", "language_model.layers",
    "backbone.layers", "layers", "transformer.h",
)  # fmt: skip
_SPELLINGS = (  # of modules in transformers' classes, and in checkpoints whose tensors the classes rename
    ("mlp.", "block_sparse_moe."), ("mlp.", "ffn."), ("self_attn.", "attn."), ("feed_forward.", "mlp."),
    ("self_attn.indexer.weights_proj", "self_attn.indexers_proj"), ("self_attn.indexer.", "self_attn.index_"),
    ("mlp.shared_experts.", "block_sparse_moe.shared_experts."), ("mlp.shared_experts.", "ffn.shared_experts."),
    ("mlp.experts.", "feed_forward.experts."),
)  # fmt: skip
# Names of experts' products in checkpoints of the kind of Mixtral's and MiniMax's
_MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
# Whatever wraps a decoder, its list of layers is the same; encoders' lists have other words in front of them.
_DECODER = re.compile(
    r"^(?:(?:model|language_model|text_model|llm|thinker|transformer|backbone|decoder|gpt_neox)\.)*(?:layers|h|blocks)\."
)


# Products that engines run as one, whose joint names lists of modules have, too (vLLM's `packed_modules_mapping`)
_JOINT = {
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj",
    "q_a_proj": "fused_qkv_a_proj", "kv_a_proj_with_mqa": "fused_qkv_a_proj",
    "in_proj_qkv": "in_proj_qkvz", "in_proj_z": "in_proj_qkvz", "in_proj_b": "in_proj_ba", "in_proj_a": "in_proj_ba",
}  # fmt: skip
_LAYER = re.compile(r"model\.layers\.(\d+)(?=[.*]|$)")


def names_of(module: str) -> tuple[str, ...]:
    """Names that a checkpoint may give a module; stacked experts are those of the first one."""
    index, _, name = module.partition(".")
    parts = {name, name.replace("qkv_proj", "q_proj")}
    parts |= {name.replace("gate_up_proj", single) for single in ("gate_proj", "up_proj")}
    owner, _, last = name.rpartition(".")
    parts |= {f"{owner}.{_JOINT[last]}"} if last in _JOINT else set()
    if match := re.fullmatch(r"(.*experts)\.(gate_up_proj|down_proj|up_proj|gate_proj)", name):
        singles = ("gate_proj", "up_proj") if match[2] == "gate_up_proj" else (match[2],)
        parts |= {match[1], *(f"{match[1]}.0.{name}" for single in singles for name in (single, _MIXTRAL[single]))}
    parts |= {part.replace(ours, theirs, 1) for part in tuple(parts) for ours, theirs in _SPELLINGS if ours in part}
    return tuple(f"{prefix}.{index}.{part}" for prefix in _PREFIXES for part in parts)


def matches(names: tuple[str, ...], pattern: str) -> bool:
    """Whether a pattern fits a module by one of its names: "re:" and an expression, wildcards, or parts of a name."""
    if pattern.startswith("re:"):
        return any(re.match(pattern[3:], name) for name in names)
    pattern = normalised(pattern)
    if "*" in pattern:
        return any(fnmatch.fnmatchcase(name, form) for name in names for form in (pattern, f"{pattern}.*"))
    return any(f".{pattern.strip('.')}." in f".{name}." for name in names)


def normalised(pattern: str) -> str:
    """A pattern with the decoder's list of layers by one name, whatever wraps it."""
    return _DECODER.sub("model.layers.", pattern)


def indexed_layer(pattern: str) -> int | None:
    """The layer that a pattern names by its number; None: an expression, or a pattern for layers of any number."""
    match = None if pattern.startswith("re:") else _LAYER.match(normalised(pattern))
    return int(match[1]) if match else None


class Patterns:
    """Patterns of modules, those that name a layer by its number under that number."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Sort ``patterns`` by the layer that each is for."""
        self._general: list[str] = []
        self._by_layer: dict[int, list[str]] = {}
        for pattern in patterns:
            layer = indexed_layer(pattern)
            is_single = layer is not None and not normalised(pattern).startswith(f"model.layers.{layer}*")
            (self._by_layer.setdefault(layer, []) if is_single and layer is not None else self._general).append(pattern)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._general or self._by_layer)

    def fit(self, module: str, names: tuple[str, ...]) -> bool:
        """Whether one of them fits a module, by its number and path and by all its names."""
        of_layer = self._by_layer.get(int(module.partition(".")[0]), ())
        return any(matches(names, pattern) for pattern in (*of_layer, *self._general))


def listed(quantization: Mapping[str, Any]) -> list[str]:
    """Patterns of modules that stay in 16 bits."""
    lists = [quantization.get(key) or [] for key in _LISTS]
    return [str(pattern) for patterns in lists if isinstance(patterns, list) for pattern in patterns]


def only_listed(quantization: Mapping[str, Any]) -> list[str]:
    """Modules that alone are quantised (`modules_in_block_to_quantize`, flat or in lists); empty: all."""
    entries = quantization.get("modules_in_block_to_quantize") or []
    return [str(name) for entry in entries for name in (entry if isinstance(entry, list) else [entry])]


def block_lists(quantization: Mapping[str, Any]) -> list[str]:
    """Patterns of the lists of layers that alone are quantised (GPTQ's and AutoRound's names of blocks); empty: all."""
    entries = [quantization.get(key) for key in ("block_name_to_quantize", "to_quant_block_names")]
    flat = [part for entry in entries for part in (entry if isinstance(entry, list) else [entry])]
    names = [name for part in flat for name in (part if isinstance(part, list) else str(part or "").split(","))]
    return [f"{str(name).strip()}.*" for name in names if str(name).strip()]


def fits_rule(names: tuple[str, ...], rule: str) -> bool:
    """Whether a rule of GPTQModel or AutoRound fits a module: a name, a pattern, or an expression to search for."""
    expression = rule[2:] if rule[:2] in ("-:", "+:") else rule
    if matches(names, rule):
        return True
    try:
        return any(re.search(expression, name) for name in names)
    except re.error:
        return False


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
