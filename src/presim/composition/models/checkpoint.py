"""Types of a checkpoint's weights, read from its config's ``quantization_config`` as vLLM 0.33 reads it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from presim.composition.models import compressed_tensors, modelopt_types, quark_types, torchao_types
from presim.composition.models.compressed_tensors import Typed, UnknownTypes
from presim.composition.models.decoder_layers import Layer, Weight, WeightType
from presim.composition.models.description import Checkpoint, Model
from presim.composition.models.module_patterns import Patterns, bits_of, block_lists, listed, names_of, only_listed
from presim.composition.models.pattern_coverage import Coverage, coverage, unread_keys

_QUANTISED = ("mixer", "dense", "shared", "experts", "beside")
_NF4 = "Products of bitsandbytes' 4-bit weights are priced as those of GPTQ's."
_MXFP8 = "Products of MXFP8 (factors for 32 elements) are priced as those of FP8 by blocks of 128."
_LM_HEAD = "Its lm_head is quantised, too; it is taken as 16 bits."
_PLAIN_NAMES = {
    "modelopt_fp4": "modelopt",
    "gpt_oss_mxfp4": "mxfp4",
    "auto_round": "auto-round",
    "intel/auto-round": "auto-round",  # older AutoRound's
}


def read(model: Model, quantization: Mapping[str, Any] | None, file: str, expert_type: str = "") -> Model:
    """The model with the types of its checkpoint. ``expert_type``: what the config itself says of experts."""
    if not quantization:
        return model
    try:
        typed, method = _typed(quantization, expert_type)
        kinds, order = _typed_layers(model, typed)
        named_modules = coverage(model, quantization)
        _refuse_other_names(kinds, named_modules, method)
    except UnknownTypes as unknown:
        return msgspec.structs.replace(model, checkpoint=Checkpoint(origin=file, problem=str(unknown)))
    except (re.error, AttributeError, TypeError) as error:  # of rules and patterns that are no expressions or objects
        problem = f"has a quantisation that cannot be read ({error}); give the published config.json"
        return msgspec.structs.replace(model, checkpoint=Checkpoint(origin=file, problem=problem))
    typed_model = msgspec.structs.replace(model, kinds=kinds, order=order)
    notes = (*model.notes, *_approximations(quantization, method), *_doubts(quantization, named_modules))
    summary = msgspec.structs.replace(_summary(typed_model, method, file), cache=_cache(quantization, method))
    return msgspec.structs.replace(typed_model, checkpoint=summary, notes=notes)


def _refuse_other_names(kinds: Iterable[Layer], named_modules: Coverage, method: str) -> None:
    """Refuse a checkpoint that names modules as this model does not.

    Raises:
        UnknownTypes: no weight is quantised, or none of the layers' modules that it names is there.
    """
    if named_modules.names_layers_in_vain:
        raise UnknownTypes(f"names modules that its layers do not have: {named_modules.in_words}")
    if all(weight.stored == "bf16" for kind in kinds for weight in kind.weights):
        named = f": none fits {named_modules.in_words}" if named_modules.unmatched else ""
        raise UnknownTypes(f"is quantised by {method}, which leaves all weights of its layers in 16 bits{named}")


def _doubts(quantization: Mapping[str, Any], named_modules: Coverage) -> Iterator[str]:
    """Sentences about what a checkpoint says and presim does not use."""
    if named_modules.unmatched:
        yield (
            f"No module of the model's layers fits {named_modules.in_words}: if weights of another name are meant, "
            "their types are wrong; compare the size of the weights with the checkpoint's, or say --weights."
        )
    if keys := unread_keys(quantization):
        yield f"Keys of the quantisation that presim does not read, so that their effect is missing: {', '.join(keys)}."


def _typed_layers(model: Model, typed: Typed) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """The kinds of layers with their types, and the kind of each layer."""
    kinds: dict[Layer, int] = {}
    order = []
    types_by_kind: dict[tuple[int, tuple[WeightType, ...]], int] = {}
    for index, kind in enumerate(model.order):
        weights = model.kinds[kind].weights
        types = tuple(_stored(weight, index, typed) for weight in weights)
        if (kind, types) not in types_by_kind:
            layer = msgspec.structs.replace(
                model.kinds[kind],
                weights=tuple(msgspec.structs.replace(weight, stored=stored) for weight, stored in zip(weights, types)),
            )
            types_by_kind[kind, types] = kinds.setdefault(layer, len(kinds))
        order.append(types_by_kind[kind, types])
    return tuple(kinds), tuple(order)


def _cache(quantization: Mapping[str, Any], method: str) -> Literal["bf16", "fp8"]:
    """The type of keys and values that vLLM 0.33 takes from a checkpoint (`get_kv_cache_quant_algo_string`)."""
    scheme = quantization.get("kv_cache_scheme")
    if method == "modelopt":
        scheme = scheme or quantization.get("kv_cache_quant_algo")
    elif method != "compressed-tensors":
        return "bf16"
    if isinstance(scheme, Mapping):
        is_fp8 = scheme.get("num_bits") == 8 and scheme.get("type") == "float" and not scheme.get("dynamic")
        return "fp8" if is_fp8 else "bf16"
    return "fp8" if str(scheme).upper() == "FP8" else "bf16"


def _approximations(quantization: Mapping[str, Any], method: str) -> Iterator[str]:
    """Sentences about types that are priced as others."""
    if method == "bitsandbytes" and not quantization.get("load_in_8bit"):
        yield _NF4
    layers = quantization.get("quantized_layers")
    entries = [quantization, *(layers.values() if isinstance(layers, Mapping) else ())]
    groups = quantization.get("config_groups")
    weights = [group.get("weights") or {} for group in groups.values()] if isinstance(groups, Mapping) else []
    of_groups = any((entry.get("num_bits"), entry.get("strategy")) == (8, "group") for entry in weights)
    if method == "mxfp8" or of_groups or any(str(entry.get("quant_algo")).upper() == "MXFP8" for entry in entries):
        yield _MXFP8
    if quantization.get("lm_head") is True:
        yield _LM_HEAD
    if method == "quark":
        yield from quark_types.approximations(quantization)


def _summary(model: Model, method: str, file: str) -> Checkpoint:
    layers = model.counts()
    plain = _commonest((weight, count) for layer, count in layers for weight in layer.weights if _is_plain(weight))
    experts = _commonest(
        (weight, count) for layer, count in layers for weight in layer.weights if weight.part == "experts"
    )
    return Checkpoint(plain or experts or "bf16", experts, method, f"{method} in {file}")


def _is_plain(weight: Weight) -> bool:
    return weight.part in ("mixer", "dense", "shared")


def _commonest(weights: Iterable[tuple[Weight, int]]) -> WeightType | None:
    """The type of most parameters."""
    parameters: Counter[WeightType] = Counter()
    for weight, count in weights:
        parameters[weight.stored] += count * weight.elements
    return parameters.most_common(1)[0][0] if parameters else None


def _stored(weight: Weight, index: int, typed: Typed) -> WeightType:
    if weight.part not in _QUANTISED:
        return "bf16"
    return typed(f"{index}.{weight.name.removesuffix('.weight')}") or "bf16"


def _typed(quantization: Mapping[str, Any], expert_type: str) -> tuple[Typed, str]:
    """Types by module, and the method's name."""
    algorithm = quantization.get("quant_algo") or quantization.get("moe_quant_algo")
    method = str(quantization.get("quant_method") or ("modelopt" if algorithm else ""))
    if quantization.get("quantized_layers") or str(algorithm).upper() == "MIXED_PRECISION":
        return modelopt_types.typed_by_module(quantization), "modelopt"
    reader = _METHODS.get(method.lower().removesuffix("_marlin"))
    if reader is None:
        priced_methods = ", ".join(name for name in _METHODS if name not in _PLAIN_NAMES)
        raise UnknownTypes(
            f"is quantised by {method or 'an unnamed method'}, which presim does not price ({priced_methods} are)"
        )
    return reader(quantization, expert_type), _PLAIN_NAMES.get(method, method).removesuffix("_marlin")


def _except(quantization: Mapping[str, Any], kind: WeightType, experts: WeightType | None = None) -> Typed:
    """One type for all modules, or another one for experts, but for those that the checkpoint leaves in 16 bits."""
    left_out = Patterns(listed(quantization))

    def typed(module: str) -> WeightType | None:
        if left_out.fit(module, names_of(module)):
            return None
        return experts if experts and _is_expert(module) else kind

    return typed


def _is_expert(module: str) -> bool:
    return bool(re.search(r"\bexperts\b", module)) and "shared" not in module


def _fp8(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    kind: WeightType = "fp8-block" if quantization.get("weight_block_size") else "fp8"
    if expert_type.lower() not in ("", "fp8", "fp4"):
        raise UnknownTypes(f"has experts of {expert_type} (expert_dtype), which presim does not price")
    experts: WeightType | None = "mxfp4" if expert_type.lower() == "fp4" else None  # with factors in UE8M0
    return _except(quantization, kind, experts)


def _type_of_bits(bits: object, method: str) -> WeightType | None:
    """The type of weights that are unpacked to 16 bits; None: they are not quantised."""
    if bits == 16 or bits == 32:
        return None
    if bits not in (4, 8):
        raise UnknownTypes(f"is quantised by {method} to {bits} bits; presim prices 4 and 8")
    return "int4" if bits == 4 else "int8-only"


def _awq(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    return _unpacked(quantization, "AWQ")


def _gptq(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    return _unpacked(quantization, "GPTQ")


def _auto_round(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    kind, input_bits = str(quantization.get("data_type") or "int"), quantization.get("act_bits") or 16
    if not kind.startswith("int") or input_bits not in (16, 32):
        raise UnknownTypes(
            f"is quantised by AutoRound to {kind} with inputs of {input_bits} bits; presim prices its int with 16"
        )
    return _unpacked(quantization, "AutoRound")


def _unpacked(quantization: Mapping[str, Any], method: str) -> Typed:
    """Weights of few bits that are multiplied in 16: all modules' or some modules' alone, with bits by rules."""
    default_bits = quantization.get("bits", quantization.get("w_bit", quantization.get("num_bits", 4)))
    _type_of_bits(default_bits, method)
    left_out, only, blocks = map(Patterns, (listed(quantization), only_listed(quantization), block_lists(quantization)))

    def typed(module: str) -> WeightType | None:
        names = names_of(module)
        if left_out.fit(module, names) or any(group and not group.fit(module, names) for group in (only, blocks)):
            return None
        return _type_of_bits(bits_of(quantization, module, default_bits), method)

    return typed


def _mxfp8(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    return _except(quantization, "fp8-block")


def _mxfp4(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    return lambda module: "mxfp4" if _is_expert(module) else None


def _bitsandbytes(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    return _except(quantization, "int8" if quantization.get("load_in_8bit") else "int4")


def _experts_int8(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    return lambda module: "int8-only" if _is_expert(module) else None


def _modelopt(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    return _except(quantization, modelopt_types.algorithm(str(quantization.get("quant_algo"))))


_METHODS: dict[str, Callable[[Mapping[str, Any], str], Typed]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "awq": _awq,
    "gptq": _gptq,
    "auto-round": _auto_round,
    "auto_round": _auto_round,
    "intel/auto-round": _auto_round,
    "mxfp8": _mxfp8,
    "mxfp4": _mxfp4,
    "gpt_oss_mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "experts_int8": _experts_int8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "compressed-tensors": compressed_tensors.typed_by_groups,
    "quark": quark_types.typed_by_quark,
    "torchao": torchao_types.typed_by_torchao,
}
