"""Factorisations and solvers of cuSOLVER, cuSPARSE and cuBLAS: name, bytes and the usual FLOP count.

Their time depends on how few columns they process at once, which no formula here models, so they stay `Kernel`s. FLOPs:
LAPACK Working Note 41, appendix C; eigenvalues and singular values with vectors: Golub and Van Loan, "Matrix
Computations", sections 7.5, 8.3 and 8.6. Jacobi methods get the same count, because the number of sweeps is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from presim.capture.reading.launch_operators import LaunchingOperator
from presim.capture.reading.log import Descriptor
from presim.trace.signatures import Kernel

_CALL = re.compile(
    r"(?:cusolverDnX?[SDCZ]?|cublas[SDCZ])"
    r"(trsm|trmm|getr[fsi]|matinv|potr[fsi]|sytrf|geqrf|gels|(?:or|un)gqr|(?:or|un)mqr|gebrd|(?:sy|he)ev|geev|gesvd)"
)
_BY_NAME = re.compile(r"cusparse(?!Lt)")  # cuSPARSE calls without sizes: solvers of blocked matrices, conversions
_Count = Callable[[int, int, int], float]  # arguments m, n and k; k is also the number of right-hand sides


def _elimination_flops(m: int, n: int, k: int) -> float:
    """A multiplication and an addition for each element of the remaining matrix, over k columns."""
    return 2 * m * n * k - (m + n) * k**2 + 2 / 3 * k**3


_FLOPS: dict[str, _Count] = {
    "trsm": lambda m, n, k: m * m * n,
    "trmm": lambda m, n, k: m * m * n,
    "getrf": lambda m, n, k: _elimination_flops(m, n, min(m, n)),
    "getrs": lambda m, n, k: 2 * n * n * k,
    "getri": lambda m, n, k: 4 / 3 * n**3,
    "matinv": lambda m, n, k: 2 * n**3,
    "potrf": lambda m, n, k: n**3 / 3,
    "potrs": lambda m, n, k: 2 * n * n * k,
    "potri": lambda m, n, k: 2 / 3 * n**3,
    "sytrf": lambda m, n, k: n**3 / 3,
    "geqrf": lambda m, n, k: 2 * _elimination_flops(m, n, min(m, n)),
    "gels": lambda m, n, k: 2 * m * n * n + 4 * m * n * k,
    "orgqr": lambda m, n, k: 2 * _elimination_flops(m, n, k),
    "ormqr": lambda m, n, k: 4 * m * n * k - 2 * n * k * k,
    "gebrd": lambda m, n, k: 8 / 3 * max(m, n) * min(m, n) ** 2,
    "syev": lambda m, n, k: 9 * n**3,
    "geev": lambda m, n, k: 25 * n**3,
    "gesvd": lambda m, n, k: 4 * max(m, n) ** 2 * min(m, n) + 8 * max(m, n) * min(m, n) ** 2 + 9 * min(m, n) ** 3,
}


def signature(work: Descriptor, operator: LaunchingOperator) -> Kernel | None:
    """A `Kernel` with the call's name, the bytes of its operator's tensors and its FLOPs; None for any other launch."""
    name = work.fields.get("name", "")
    called = _CALL.match(name)
    if called is None and not name.startswith("cusolver") and not _BY_NAME.match(name):
        return None
    touched = sum(operand.bytes for operand in operator.inputs + operator.outputs)
    return Kernel(name, (1, 1, 1), (1, 1, 1), touched, operator.name, flops=_flops(called[1], work) if called else 0)


def _flops(routine: str, work: Descriptor) -> int:
    count = _FLOPS[routine.replace("ungqr", "orgqr").replace("unmqr", "ormqr").replace("heev", "syev")]
    n = work.number("n")
    flops_per_matrix = count(work.number("m", n), n, work.number("nrhs") or work.number("k"))
    return round(flops_per_matrix) * max(1, work.number("batch", 1))
