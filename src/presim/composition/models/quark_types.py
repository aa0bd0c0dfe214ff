"""Types of weights in a checkpoint of AMD Quark: one scheme for all products, and others for some modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from presim.composition.models.compressed_tensors import Typed, UnknownTypes
from presim.composition.models.decoder_layers import WeightType
from presim.composition.models.module_patterns import Patterns, listed, names_of

_MX_GROUP = 32  # elements that share a factor in the OCP's microscaling formats


def typed_by_quark(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    """Types by module, as vLLM reads them: the scheme of the module, of its class, or of all.

    Raises:
        UnknownTypes: presim does not price what a scheme says.
    """
    schemes = {pattern: _scheme(scheme) for pattern, scheme in scheme_by_pattern(quantization).items()}
    patterns = {pattern: Patterns([pattern]) for pattern in schemes}
    by_class = (quantization.get("layer_type_quant_config") or {}).get("Linear")
    remaining = _scheme(by_class or quantization.get("global_quant_config") or {})
    left_out = Patterns(listed(quantization))

    def typed(module: str) -> WeightType | None:
        names = names_of(module)
        if left_out.fit(module, names):
            return None
        fitting = (pattern for pattern in schemes if patterns[pattern].fit(module, names))
        pattern = next(fitting, None)
        return remaining if pattern is None else schemes[pattern]

    return typed


def scheme_by_pattern(quantization: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Schemes of some modules alone, by the pattern of their names."""
    schemes: Mapping[str, Mapping[str, Any]] = quantization.get("layer_quant_config") or {}
    return schemes


def approximations(quantization: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about types that are priced as others, and about keys and values in FP8."""
    schemes = [quantization.get("global_quant_config") or {}, *scheme_by_pattern(quantization).values()]
    if any(scheme.get("input_tensors") and _scheme(scheme) == "mxfp4" for scheme in schemes):
        yield "Products of MXFP4 weights with quantised inputs are priced as those with inputs of 16 bits."
    if (quantization.get("export") or {}).get("kv_cache_group"):
        yield "Its factors for keys and values in FP8 are used only with --kv fp8."


def _scheme(scheme: Mapping[str, Any]) -> WeightType | None:
    """The type of a scheme's weights; None: they stay in 16 bits."""
    weight, inputs = scheme.get("weight"), scheme.get("input_tensors")
    if not weight:
        return None
    if isinstance(weight, list):
        names = " and ".join(str(part.get("dtype")) for part in weight)
        raise UnknownTypes(f"has weights in two steps ({names}) of Quark, which presim does not price")
    kind, scope = str(weight.get("dtype")), str(weight.get("qscheme"))
    if kind.startswith("fp8"):
        by_block = scope in ("per_block", "per_group")
        return ("fp8-block" if by_block else "fp8") if inputs else "int8-only"
    if kind.startswith("fp4") and weight.get("group_size", _MX_GROUP) == _MX_GROUP:
        return "mxfp4"
    if kind == "int8":
        return "int8" if inputs else "int8-only"
    if kind in ("int4", "uint4") and not inputs:
        return "int4"
    raise UnknownTypes(
        f"has weights of {kind} ({scope}) with {'quantised' if inputs else '16-bit'} inputs in Quark, which presim "
        "does not price"
    )
