"""Patterns of a checkpoint that fit no module of its model, and keys of its quantisation that nothing here reads.

A pattern that fits nothing may be meant for weights under another name, whose types are then wrong without a word.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from presim.composition.models.description import Model
from presim.composition.models.module_patterns import (
    block_lists,
    fits_rule,
    indexed_layer,
    listed,
    matches,
    names_of,
    normalised,
    only_listed,
)
from presim.composition.models.quark_types import scheme_by_pattern
from presim.composition.models.torchao_types import config_by_module

# Words of modules that have 16 bits here whatever a checkpoint says, or that are no layers of the decoder
_OUTSIDE = re.compile(
    r"head|embed|wte|wpe|vis(?:ion|ual)|\bvi[ts]\b|image|video|audio|speech|acoustic|whisper|sam_|clip|projector|projection|"
    r"mm_proj|mlp1|merge|connector|resampler|encoder|tower|talker|code2wav|token2wav|tts|vae|diffusion|mtp|nextn|eagle|"
    r"draft|eh_proj|norm|\bln_|router|\bgate\b|_gate\b|correction_bias|rotary|conv|A_log|dt_|\bscale|engram|output_layer",
    re.IGNORECASE,
)
_READ = frozenset((
    "quant_method", "quant_algo", "moe_quant_algo", "quantized_layers", "bits", "w_bit", "num_bits", "load_in_8bit",
    "load_in_4bit", "config_groups", "format", "modules_to_not_convert", "ignored_layers", "ignore",
    "exclude_modules", "llm_int8_skip_modules", "modules_to_not_quantize", "modules_in_block_to_quantize",
    "block_name_to_quantize", "to_quant_block_names", "dynamic", "extra_config", "data_type", "act_bits",
    "weight_block_size", "kv_cache_scheme", "kv_cache_quant_algo", "sparsity_config", "lm_head", "expert_dtype",
    "exclude", "global_quant_config", "layer_quant_config", "layer_type_quant_config", "export", "quant_type",
))  # fmt: skip
# Keys that change neither the type of a weight nor what a product costs here: of all methods and FP8, of AWQ and GPTQ
# (how a checkpoint was made and packed), of AutoRound, of bitsandbytes, of Quark and torchao
_NEUTRAL = frozenset((
    "producer", "provider", "version", "group_size", "q_group_size", "zero_point", "sym", "symmetric", "scale_fmt",
    "fmt", "activation_scheme", "dequantize", "weight_per_tensor", "act_per_tensor", "activation_scale_ub",
    "quantization_status", "global_compression_ratio", "run_compressed", "packed_modules_mapping", "model_free",
    "use_optimized_inference", "has_zero_point", "pre_quant_scale", "smoothquant_val", "awq_block_size",
    "backend", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", "use_exllama",
    "max_input_length", "cache_block_outputs", "desc_act", "act_group_aware", "static_groups", "true_sequential",
    "damp_percent", "damp_auto_increment", "is_marlin_format", "checkpoint_format", "pack_dtype", "meta", "method",
    "model_name_or_path", "model_file_base_name", "model_seqlen", "dataset", "tokenizer", "batch_size",
    "pad_token_id", "module_name_preceding_first_block", "use_cuda_fp16", "disable_exllama", "quantizer",
    "offload_to_disk",
    "amp", "autoround_version", "packing_format", "iters", "lr", "minmax_lr", "nsamples", "seqlen",
    "low_gpu_mem_usage", "enable_minmax_tuning", "enable_norm_bias_tuning", "enable_quanted_input",
    "gradient_accumulate_steps", "not_use_best_mse", "quant_block_list", "scale_dtype", "act_data_type",
    "act_dynamic", "act_group_size", "act_sym", "enable_torch_compile", "device_map", "enable_alg_ext",
    "llm_int8_threshold", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage", "_load_in_4bit", "_load_in_8bit",
    "algo_config", "quant_mode", "kv_cache_quant_config", "kv_cache_post_rope", "quant_type_kwargs",
))  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Patterns that should fit weights of the layers: how many do, and those that do not."""

    fitting: int
    unmatched: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """The patterns that fit nothing, by number and example."""
        count, example = len(self.unmatched), self.unmatched[0]
        number = f"{count} patterns" if count > 1 else "1 pattern"
        return f"{number} of its quantisation ({example}{', ...' if count > 1 else ''})"

    @property
    def names_layers_in_vain(self) -> bool:
        """Whether it names modules of single layers, and nothing that it names is there."""
        return not self.fitting and any(indexed_layer(pattern) is not None for pattern in self.unmatched)


@dataclasses.dataclass(frozen=True)
class _Pattern:
    text: str
    is_rule: bool = False  # of GPTQModel or AutoRound, an expression that is searched for


def coverage(model: Model, quantization: Mapping[str, Any]) -> Coverage:
    """Which patterns of a checkpoint fit modules of its model; those for embeddings, encoders and drafters aside."""

    @functools.cache
    def modules_of(index: int) -> tuple[tuple[str, ...], ...]:
        weights = model.kinds[model.order[index]].weights
        return tuple(names_of(f"{index}.{weight.name.removesuffix('.weight')}") for weight in weights)

    first_layers = [model.order.index(kind) for kind in sorted(set(model.order))]

    def fits(pattern: _Pattern) -> bool:
        check = fits_rule if pattern.is_rule else matches
        layer = None if pattern.is_rule else indexed_layer(pattern.text)
        layers = [layer] if layer is not None else [*first_layers, *range(model.layers)]
        return any(check(names, pattern.text) for index in layers for names in modules_of(index))

    fitting, unmatched = 0, []
    for pattern in dict.fromkeys(_patterns(quantization)):
        if (indexed_layer(pattern.text) or 0) >= model.layers:  # a layer that predicts further tokens
            continue
        if fits(pattern):
            fitting += 1
        elif not _is_outside(pattern.text):
            unmatched.append(pattern.text)
    return Coverage(fitting, tuple(unmatched))


def _is_outside(pattern: str) -> bool:
    """Whether a pattern is for what is no quantised weight of the decoder's layers; by its last word in a layer."""
    text = pattern.replace("\\", "")
    if indexed_layer(pattern) is not None:
        text = normalised(pattern).split(".", 3)[-1].removesuffix("*").rstrip(".").removesuffix(".weight")
        text = text.rpartition(".")[2]
    return bool(_OUTSIDE.search(text))


def _patterns(quantization: Mapping[str, Any]) -> Iterator[_Pattern]:
    lists = (listed, only_listed, block_lists, _targets)
    for text in (text for read in lists for text in read(quantization)):
        if text[:1].isupper() and text.isidentifier() and text in listed(quantization):
            continue  # a class of modules that contain products, as in compressed-tensors' lists, leaves none out
        yield _Pattern(re.sub(r"\bexperts\.\d+", "experts.0", text.removesuffix(".weight")))
    for key in ("dynamic", "extra_config"):
        rules = quantization.get(key)
        yield from (_Pattern(str(rule), is_rule=True) for rule in (rules if isinstance(rules, Mapping) else ()))


def _targets(quantization: Mapping[str, Any]) -> Iterator[str]:
    """Modules that groups of compressed-tensors or ModelOpt's mixed precision name; not the class of all products."""
    layers = quantization.get("quantized_layers")
    if isinstance(layers, Mapping):
        yield from map(str, layers)
    elif str(quantization.get("quant_method")) == "quark":
        yield from map(str, scheme_by_pattern(quantization))
    elif str(quantization.get("quant_method")) == "torchao":
        yield from (name for name in config_by_module(quantization) if name != "_default")
    elif str(quantization.get("quant_method")) == "compressed-tensors" and isinstance(
        groups := quantization.get("config_groups"), Mapping
    ):
        for group in groups.values():
            targets = group.get("targets") if isinstance(group, Mapping) else None
            yield from (str(target) for target in targets or () if target != "Linear")


def unread_keys(quantization: Mapping[str, Any]) -> list[str]:
    """Keys that say something and that presim neither reads nor knows to be without effect."""
    return sorted(key for key, value in quantization.items() if value and key not in _READ and key not in _NEUTRAL)
