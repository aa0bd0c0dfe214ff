"""The signature of a product with an unstructured sparse matrix."""

from __future__ import annotations

from typing import Literal

import msgspec

from presim.system.files.field_bounds import Size
from presim.trace.dtypes import dtype_bytes


class SparseProduct(msgspec.Struct, frozen=True, tag_field="family", tag="sparse_product"):
    """A product with an unstructured sparse matrix, as cuSPARSE does it.

    ==========  ====================================================================================
    spmm        ``d[batch, m, n] = a[batch, m, k] @ b[batch, k, n]``, ``a`` sparse
    spmv        the same of a vector, n = 1
    sddmm       ``d[m, n] += a[m, k] @ b[k, n]`` where the sparse ``d`` has its non-zeros
    spgemm      ``a``, ``b`` and ``d`` are sparse
    ==========  ====================================================================================
    """

    operation: Literal["spmm", "spmv", "sddmm", "spgemm"]
    m: Size
    n: Size
    k: Size
    nnz: Size  # stored values of one sparse matrix; of blocks all of their elements
    batch: Size
    dtype: str
    format: str = "csr"  # csr, csc, coo, bsr
    index_bytes: Size = 4
    block: Size = 1  # side of a block
    other_nnz: Size = 0  # spgemm: of b
    result_nnz: Size = 0  # spgemm: of d, which nobody knows: see the trace's notes

    @property
    def products(self) -> int:
        """Number of multiplied pairs of values; for two sparse matrices, if their values are evenly scattered."""
        if self.operation == "spgemm":
            return self.nnz * self.other_nnz // max(self.k, 1) * self.batch
        return self.nnz * (self.k if self.operation == "sddmm" else self.n) * self.batch

    @property
    def flops(self) -> int:
        """Multiply-adds counted as two."""
        return 2 * self.products

    @property
    def bytes(self) -> int:
        """Bytes of each operand and the result once; dense rows and columns without non-zeros do not count."""
        value_bytes = dtype_bytes(self.dtype)
        moved_bytes = self._stored(self.nnz, self.m)
        if self.operation == "spgemm":
            moved_bytes += self._stored(self.other_nnz, self.k) + self._stored(self.result_nnz, self.m)
        elif self.operation == "sddmm":
            moved_bytes += (min(self.m, self.nnz) + min(self.n, self.nnz)) * self.k * value_bytes
        else:
            moved_bytes += (min(self.k, self.nnz) + self.m) * self.n * value_bytes
        return round(moved_bytes) * self.batch

    def _stored(self, nnz: int, rows: int) -> float:
        """Bytes of a sparse matrix: values, an index for each block or two, and where each row begins."""
        blocks = nnz // self.block**2
        starts = blocks if self.format == "coo" else rows // self.block + 1
        return nnz * dtype_bytes(self.dtype) + (blocks + starts) * self.index_bytes
