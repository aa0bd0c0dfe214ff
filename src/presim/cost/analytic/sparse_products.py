"""Products with sparse matrices by cuSPARSE: memory-bound, limited by gathering rows of the dense operand.

No public table of cuSPARSE times supports these prices, so their uncertainty is large. The rates are those of kernels
that gather rows by index (`memory_bound.*.index` in operators.toml). The positions of non-zeros are unknown; they are
assumed to be evenly scattered: the worst case for the cache, the best for the balance of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.cost.analytic.gpu_figures import Device, precision
from presim.cost.analytic.operator_constants import MemoryConstants, find_constants
from presim.cost.price import Origin, Price
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import SparseProduct

UNCERTAINTY = 0.7
# Product of two sparse matrices: each pair of values is written with its index, sorted in four radix passes, and read
# for the sum, as in ESC algorithms (Bell, Dalton and Olson, Exposing Fine-Grained Parallelism in Algebraic Multigrid,
# 2012). cuSPARSE's own algorithm is unknown.
_PASSES_OVER_PAIRS = 5  # each reads and writes
_LAUNCHES = {"spgemm": 6}  # as of a radix sort (memory_bound.py)
_VECTOR_SHARE = 0.5  # share of the vector units' peak in products without tensor cores: assumed
_TWO_SPARSE = 0.9  # uncertainty if the size of the result is unknown


def price(signatures: Sequence[SparseProduct], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: SparseProduct, device: Device) -> Price:
    constants, borrowed = find_constants(MemoryConstants, "memory_bound", device.generation, ("index", "elementwise"))
    rate = device.memory_Bps * constants.efficiency
    streaming = max(_from_memory(signature, device) / rate, signature.bytes / device.memory_Bps)
    gathering = _gathered(signature) / (rate * constants.l2_gain)
    arithmetic = signature.flops / (_VECTOR_SHARE * device.peak(_units(signature.dtype)))
    launch = constants.launch_us * 1e-6 * _LAUNCHES.get(signature.operation, 1)
    busy = max(streaming, gathering, arithmetic)
    bound = "compute" if busy == arithmetic > 0 else "memory"
    bound = "latency" if busy < launch else bound
    uncertainty = _TWO_SPARSE if signature.operation == "spgemm" else UNCERTAINTY * borrowed * device.uncertainty_factor
    return Price(max(1, round((launch + busy) * 1e9)), Origin.ANALYTIC, min(uncertainty, 0.9), "analytic/sparse", bound)


def _units(dtype: str) -> str:
    """Peak of the vector units: cuSPARSE accumulates in float32, or in float64 for wide types."""
    return "fp64" if precision(dtype) == "fp64" else "fp32"


def _gathered(signature: SparseProduct) -> float:
    """Bytes of gathered dense rows, once per non-zero; a block shares its rows."""
    value = dtype_bytes(signature.dtype)
    if signature.operation == "spgemm":
        return _PASSES_OVER_PAIRS * 2.0 * signature.products * (value + signature.index_bytes)
    return float(signature.products // signature.block * value)


def _from_memory(signature: SparseProduct, device: Device) -> float:
    """Bytes from memory: each operand once, plus rows gathered again after eviction from L2."""
    value = dtype_bytes(signature.dtype)
    depth = signature.n if signature.operation == "sddmm" else signature.k
    width = signature.k if signature.operation == "sddmm" else signature.n
    table = float(max(depth * width * value, 1))
    if signature.operation == "spgemm":
        table = float(signature.products * (value + signature.index_bytes))  # pairs to sort
    regathered_bytes = max(_gathered(signature) - table * signature.batch, 0.0)
    return signature.bytes + regathered_bytes * max(0.0, 1 - device.l2_bytes / max(table, 1.0))
