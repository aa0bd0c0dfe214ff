"""What a step of an engine is made of: signatures, communication, and the products of linear layers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from presim.composition.models.decoder_layers import Layer, Weight, WeightType
from presim.serving.serving_plan import DTYPES, ServingPlan
from presim.serving.steps.routed_experts import Routed
from presim.trace.signatures import Elementwise, Gemm, Normalization, Signature

HALF = "bfloat16"


@dataclasses.dataclass(frozen=True)
class Reduce:
    """A collective over attention's, experts' or the cache's ranks, or a message to the next pipeline stage."""

    bytes: int
    over: Literal["tp", "experts", "stages", "context"]
    kind: Literal["all_reduce", "all_to_all", "all_gather", "reduce_scatter", "send"] = "all_reduce"


Work = Signature | Reduce | Routed


def product(m: int, n: int, k: int, weights: str, *, quantises: bool = False) -> list[Work]:
    """A linear layer; ``quantises``: a separate kernel quantises its input, instead of the preceding kernel."""
    dtype = DTYPES[weights]
    if dtype == HALF:
        return [Gemm(m, n, k, 1, HALF, b_dtype=PACKED.get(weights, ""), layout="NT")]
    size = 0.5 if dtype.startswith("float4") else 1.0
    quantise = Elementwise(2 * m * k, int(m * k * size), m * k, HALF, operator="quantise")
    scaling = "block" if weights in ("fp8-block", "fp4") else "outer"
    gemm = Gemm(m, n, k, 1, dtype, out_dtype=HALF, layout="NT", scaling=scaling)
    return [quantise, gemm] if quantises else [gemm]


# Types whose products run in 16 bits, on weights that are unpacked on the fly
PACKED: dict[str, str] = {"int4": "uint4", "mxfp4": "uint4", "fp4-only": "uint4", "int8-only": "int8"}


def stored_in(layer: Layer, plan: ServingPlan, *parts: str) -> WeightType:
    """The type of most of a layer's parameters of some parts."""
    if not plan.as_published:
        return plan.of_experts if parts == ("experts",) else plan.weights
    return _commonest(weight for weight in layer.weights if weight.part in parts)


class MixerTypes(NamedTuple):
    """Types of a mixer's weights: checkpoints in NVFP4 often quantise only the output projection."""

    inputs: WeightType
    output: WeightType


_OUTPUT = re.compile(r"\b(o_proj|out_proj|wo|dense|c_proj)\b")  # names of output projections


def types_of_mixer(layer: Layer, plan: ServingPlan) -> MixerTypes:
    """The types of most of a mixer's parameters before its output projection, and of that projection."""
    if not plan.as_published:
        return MixerTypes(plan.weights, plan.weights)
    weights = of_part(layer.weights, "mixer")
    outputs = [weight for weight in weights if _OUTPUT.search(weight.name)]
    inputs = [weight for weight in weights if weight not in outputs]
    return MixerTypes(_commonest(inputs or weights), _commonest(outputs or weights))


def _commonest(weights: Iterable[Weight]) -> WeightType:
    """The type of most parameters; 16 bits if there are none."""
    elements_by_type: dict[WeightType, int] = {}
    for weight in weights:
        elements_by_type[weight.stored] = elements_by_type.get(weight.stored, 0) + weight.elements
    return max(elements_by_type, key=lambda kind: elements_by_type[kind]) if elements_by_type else "bf16"


def norm(tokens: int, width: int) -> Normalization:
    """A fused residual addition and RMS norm."""
    moved_bytes = 2 * tokens * width
    return Normalization(2 * moved_bytes, 2 * moved_bytes, tokens * width, HALF, operator="rms_norm", row=width)


def elementwise(read: int, written: int, operator: str) -> Elementwise:
    """A kernel over 16-bit elements."""
    return Elementwise(read, written, max(read, written) // 2, HALF, operator=operator)


def of_part(weights: Iterable[Weight], part: str) -> list[Weight]:
    """The weights of a part."""
    return [weight for weight in weights if weight.part == part]
