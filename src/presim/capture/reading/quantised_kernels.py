"""Memory traffic of the kernels in Transformer Engine's quantising functions, which make several passes over a tensor.

With current scaling, one kernel reads the whole tensor for its maximum and another one reads it again to cast it. A
norm writes FP8 itself if its scale is known before (with a separate kernel for the transpose); otherwise it writes the
wider type, which is then cast. Names are those of Transformer Engine's kernels (2.20, transformer_engine/common).
"""

from __future__ import annotations

from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.capture.reading.log import Descriptor
from presim.trace.signatures import Elementwise, Normalization, Reduction, Signature

_SMALL_KERNELS = ("zero_amax", "compute_scale_from_amax", "reduce_dbias", "bwd_finalize")
_AMAX = "amax_kernel"
_CASTS = ("cast_transpose", "cast_fp8")
_TRANSPOSES = "transpose"
_NORMS = ("rmsnorm_fwd", "ln_fwd", "layernorm_fwd", "rmsnorm_bwd", "ln_bwd", "layernorm_bwd")
_FORMATS = "fp8"  # in the name of a norm kernel that writes FP8


def signature(work: Descriptor, operator: LaunchingOperator) -> Signature | None:
    """The signature of a kernel with known passes; None for any other."""
    base = operator.base_name
    if not operator.name.startswith("te::") or not ("quantize" in base or "norm" in base):
        return None
    kernel = work.fields.get("name", "")
    wide = [operand for operand in operator.inputs if operand.on_device and operand.dtype != "uint8"]
    if not wide:
        return None
    source = max(wide, key=lambda operand: operand.elements)
    cast = [operand for operand in operator.outputs if operand.dtype == "uint8" and operand.elements == source.elements]
    name = operator.name
    if any(part in kernel for part in _SMALL_KERNELS):
        return Elementwise(0, 0, 1, source.dtype, operator=name)
    if _AMAX in kernel:
        pieces = _pieces(operator, source)
        return Reduction(source.bytes // pieces, 4, source.elements // pieces, source.dtype, operator=name)
    if any(part in kernel for part in _CASTS) and cast:
        cast_bytes = sum(operand.bytes for operand in cast)
        return Elementwise(source.bytes, cast_bytes, source.elements, source.dtype, operator=name)
    if any(part in kernel for part in _NORMS):
        return _norm(kernel, operator, source, cast)
    if _TRANSPOSES in kernel and cast:
        return Elementwise(cast[0].bytes, cast[0].bytes, source.elements, "uint8", operator=name)
    return None


def _pieces(operator: LaunchingOperator, source: Operand) -> int:
    """Number of parts in which the tensor is quantised by separate kernels, such as the rows of a rank's experts.

    Each part has as many copies (by rows and by columns) as the others.
    """
    if "split" not in operator.base_name:
        return 1
    cast_elements = [operand.elements for operand in operator.outputs if operand.dtype == "uint8" and operand.elements]
    return max(1, round(len(cast_elements) * source.elements / sum(cast_elements))) if cast_elements else 1


def _norm(kernel: str, operator: LaunchingOperator, source: Operand, cast: list[Operand]) -> Signature:
    """Reads its inputs once; forward, it writes FP8 or the wider type that is then cast."""
    read = sum(operand.bytes for operand in operator.inputs if operand.on_device)
    if "bwd" in kernel:
        written = sum(operand.bytes for operand in operator.outputs)
    else:
        large = cast[0].bytes if cast and _FORMATS in kernel else source.bytes
        written = large + sum(operand.bytes for operand in operator.outputs if operand.elements < source.elements)
    return Normalization(read, written, source.elements, source.dtype, operator=operator.name, row=operator.row)
