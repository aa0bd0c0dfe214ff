"""Sums, means, extremes and norms, over a whole tensor, its rows or its columns.

The bytes give the number of results but not the reduced dimension, so both are measured.
"""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import FLOATS, Argument, Call, Tensor
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Reduction

# Operators that take a list of dimensions.
_DIMENSION_LIST = (
    "sum",
    "mean",
    "amax",
    "amin",
    "any",
    "all",
    "linalg_vector_norm",
    "var",
    "std",
)
_ONE_DIMENSION = ("argmax", "argmin", "prod")  # take one dimension, or none for a full reduction
_WITH_INDICES = ("max", "min")  # along a dimension, also return indices
OPERATORS = frozenset(f"aten::{name}" for name in (*_DIMENSION_LIST, *_ONE_DIMENSION, *_WITH_INDICES))
_WIDENED = ("sum", "mean", "linalg_vector_norm")  # the result may have another type
_RESULTS = {"any": "bool", "all": "bool", "argmax": "int64", "argmin": "int64"}


def propose(signature: Reduction) -> Iterator[Call]:
    """Calls over one tensor of the signature's type; results have that type first, then a wider one."""
    name, count = signature.operator.removeprefix("aten::"), signature.elements
    if not (signature.dtype in (*FLOATS, "float64") or (signature.dtype == "bool" and name in ("any", "all"))):
        return  # sums of booleans and integers are cast first, by a separate kernel
    result_dtype = _RESULTS.get(name, signature.dtype)
    for dtype in (result_dtype, "float32") if name in _WIDENED else (result_dtype,):
        index_bytes = 8 if name in _WITH_INDICES and signature.bytes_written > dtype_bytes(dtype) else 0
        results, remainder = divmod(signature.bytes_written, dtype_bytes(dtype) + index_bytes)
        if remainder or results < 1 or count % results or results == count:
            continue
        for shape, axis, written in _shapes(count, results):
            outputs = (Tensor(dtype, written), *((Tensor("int64", written),) if index_bytes else ()))
            yield _call(signature, name, Tensor(signature.dtype, shape), axis, outputs)
        return


def _shapes(count: int, results: int) -> Iterator[tuple[tuple[int, ...], int | None, tuple[int, ...]]]:
    """The tensor, the reduced dimension, and the results."""
    if results == 1:
        yield (count,), None, ()
        return
    yield (results, count // results), 1, (results,)
    yield (count // results, results), 0, (results,)


def _call(signature: Reduction, name: str, source: Tensor, axis: int | None, outputs: tuple[Tensor, ...]) -> Call:
    """A call; a result type other than the operator's default is an explicit argument."""
    options: tuple[tuple[str, Argument], ...] = ()
    if name in _WIDENED and outputs[0].dtype != signature.dtype:
        options = (("dtype", f"torch.{outputs[0].dtype}"),)
    arguments: tuple[Argument, ...] = (source,)
    if name == "linalg_vector_norm":
        arguments += (2.0,)
    if axis is not None:
        arguments += (axis if name in _ONE_DIMENSION + _WITH_INDICES else (axis,),)
    elif name in ("amax", "amin"):
        arguments += ((0,),)
    return Call(signature.operator, arguments, outputs, options)
