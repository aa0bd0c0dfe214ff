"""Types of weights in a checkpoint of torchao: one config for all products, or one for each named module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from presim.composition.models.compressed_tensors import Typed, UnknownTypes
from presim.composition.models.decoder_layers import WeightType
from presim.composition.models.module_patterns import Patterns, listed, names_of

# torchao.quantization's configs, and torchao.prototype.mx_formats'
_TYPES: dict[str, WeightType] = {
    "Float8DynamicActivationFloat8Weight": "fp8",
    "Float8StaticActivationFloat8Weight": "fp8",
    "Float8WeightOnly": "int8-only",  # unpacked to 16 bits, one byte an element
    "Int8DynamicActivationInt8Weight": "int8",
    "Int8WeightOnly": "int8-only",
    "Int4WeightOnly": "int4",
    "NVFP4DynamicActivationNVFP4Weight": "fp4",
    "NVFP4WeightOnly": "fp4-only",
}
_DEFAULT = "_default"  # of modules that no other entry names


def typed_by_torchao(quantization: Mapping[str, Any], expert_type: str) -> Typed:
    """Types by module.

    Raises:
        UnknownTypes: presim does not price a config, or there is none.
    """
    default, types = None, dict[str, WeightType | None]()
    for name, config in config_by_module(quantization).items():
        if name == _DEFAULT:
            default = _type(config)
        else:
            types[name] = _type(config)
    patterns = {name: Patterns([name]) for name in types}
    left_out = Patterns(listed(quantization))

    def typed(module: str) -> WeightType | None:
        names = names_of(module)
        if left_out.fit(module, names):
            return None
        return next((types[name] for name in types if patterns[name].fit(module, names)), default)

    return typed


def config_by_module(quantization: Mapping[str, Any]) -> Mapping[str, Any]:
    """Configs by module's name or expression; that of all others under ``_default``."""
    config: Any = quantization.get("quant_type")
    if isinstance(config, Mapping) and "_type" not in config:
        config = config.get("default")
    if not config:
        raise UnknownTypes("is quantised by torchao without quant_type, which says the types of weights")
    if isinstance(config, Mapping) and config.get("_type") in ("ModuleFqnToConfig", "FqnToConfig"):
        data = config.get("_data") or {}
        by_module: Mapping[str, Any] = data.get("fqn_to_config") or data.get("module_fqn_to_config") or {}
        return by_module
    return {_DEFAULT: config}


def _type(config: Any) -> WeightType | None:
    """The type of a config, by the name of its class or by the older name of its function; None: 16 bits."""
    if config is None:
        return None
    name = str(config.get("_type") if isinstance(config, Mapping) else config)
    plain = re.sub(r"(?:^|_)(\w)", lambda letter: letter[1].upper(), name).removesuffix("Config")
    kind = next((kind for class_name, kind in _TYPES.items() if class_name.lower() == plain.lower()), None)
    if kind is None:
        raise UnknownTypes(f"is quantised by torchao's {name}, which presim does not price ({', '.join(_TYPES)} are)")
    return kind
