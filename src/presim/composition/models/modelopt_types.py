"""Types of weights in a checkpoint of NVIDIA's ModelOpt, by the names of its algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from presim.composition.models.compressed_tensors import Typed, UnknownTypes
from presim.composition.models.decoder_layers import WeightType
from presim.composition.models.module_patterns import names_of

# ModelOpt's names (its export module's QUANTIZATION_*)
_TYPES: dict[str, WeightType] = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8-block",
    "FP8_BLOCK_SCALES": "fp8-block",  # TensorRT-LLM's name of it
    "NVFP4": "fp4",
    "NVFP4_AWQ": "fp4",
    "W4A16_NVFP4": "fp4-only",
    "W4A16_AWQ": "int4",
    "MXFP4": "mxfp4",
    "MXFP8": "fp8-block",
    "INT8_SQ": "int8",
    "W8A16": "int8-only",
    "W8A8_SQ_PER_CHANNEL": "int8",
}


def algorithm(name: str) -> WeightType:
    """The type of an algorithm of ModelOpt.

    Raises:
        UnknownTypes: presim does not price it.
    """
    kind = _TYPES.get(name.upper())
    if kind is None:
        raise UnknownTypes(f"is quantised by ModelOpt's {name}, which presim does not price ({', '.join(_TYPES)} are)")
    return kind


def typed_by_module(quantization: Mapping[str, Any]) -> Typed:
    """Mixed precision: an algorithm for each listed module; of others, what the method itself says.

    Raises:
        UnknownTypes: there is no list of modules, or presim does not price one of their algorithms.
    """
    layers = quantization.get("quantized_layers")
    if not isinstance(layers, dict):
        raise UnknownTypes("has mixed precision without quantized_layers, which say the type of each module")
    kinds = {name: algorithm(str(entry.get("quant_algo"))) for name, entry in layers.items()}
    unlisted: WeightType | None = "fp8-block" if quantization.get("weight_block_size") else None

    def typed(module: str) -> WeightType | None:
        for name in names_of(module):
            for parent in (name, name.rpartition(".")[0], name.rpartition(".")[0].rpartition(".")[0]):
                if parent in kinds:
                    return kinds[parent]
        return unlisted

    return typed
