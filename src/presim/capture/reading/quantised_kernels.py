"""What each kernel moves of Transformer Engine's functions that quantise: several passes over the same tensor.

With current scaling a first kernel reads all of it for the largest value, and another one reads it again to cast it. A
norm writes FP8 itself where its scale is known before (its transpose is a kernel of its own), and else the wider type,
which is cast then. Names are those of Transformer Engine's kernels (2.20, transformer_engine/common).
"""

from __future__ import annotations

from presim.capture.reading.log import Descriptor
from presim.capture.reading.operators import Operand, Operator
from presim.trace.signatures import Elementwise, Normalization, Reduction, Signature

_LITTLE = ("zero_amax", "compute_scale_from_amax", "reduce_dbias", "bwd_finalize")
_LARGEST = "amax_kernel"
_CASTS = ("cast_transpose", "cast_fp8")
_TRANSPOSES = "transpose"
_NORMS = ("rmsnorm_fwd", "ln_fwd", "layernorm_fwd", "rmsnorm_bwd", "ln_bwd", "layernorm_bwd")
_FORMATS = "fp8"  # in the name of a norm's kernel: it writes that


def signature(work: Descriptor, operator: Operator) -> Signature | None:
    """The signature of a kernel whose passes are known by its name; None for every other one."""
    base = operator.base_name
    if not operator.name.startswith("te::") or not ("quantize" in base or "norm" in base):
        return None
    kernel = work.fields.get("name", "")
    wide = [operand for operand in operator.inputs if operand.on_device and operand.dtype != "uint8"]
    if not wide:
        return None
    source = max(wide, key=lambda operand: operand.elements)
    cast = [one for one in operator.outputs if one.dtype == "uint8" and one.elements == source.elements]
    name = operator.name
    if any(part in kernel for part in _LITTLE):
        return Elementwise(0, 0, 1, source.dtype, operator=name)
    if _LARGEST in kernel:
        pieces = _pieces(operator, source)
        return Reduction(source.bytes // pieces, 4, source.elements // pieces, source.dtype, operator=name)
    if any(part in kernel for part in _CASTS) and cast:
        return Elementwise(source.bytes, sum(one.bytes for one in cast), source.elements, source.dtype, operator=name)
    if any(part in kernel for part in _NORMS):
        return _norm(kernel, operator, source, cast)
    if _TRANSPOSES in kernel and cast:
        return Elementwise(cast[0].bytes, cast[0].bytes, source.elements, "uint8", operator=name)
    return None


def _pieces(operator: Operator, source: Operand) -> int:
    """In how many pieces the tensor is quantised, each by kernels of its own: rows of a rank's experts are.

    Each piece has as many copies, by rows and by columns, as the others.
    """
    if "split" not in operator.base_name:
        return 1
    cast = [one.elements for one in operator.outputs if one.dtype == "uint8" and one.elements]
    return max(1, round(len(cast) * source.elements / sum(cast))) if cast else 1


def _norm(kernel: str, operator: Operator, source: Operand, cast: list[Operand]) -> Signature:
    """Reads what it is given once; forward it writes FP8 once, or the wider type that is to be cast."""
    read = sum(operand.bytes for operand in operator.inputs if operand.on_device)
    if "bwd" in kernel:
        written = sum(operand.bytes for operand in operator.outputs)
    else:
        large = cast[0].bytes if cast and _FORMATS in kernel else source.bytes
        written = large + sum(one.bytes for one in operator.outputs if one.elements < source.elements)
    return Normalization(read, written, source.elements, source.dtype, operator=operator.name, row=operator.row)
