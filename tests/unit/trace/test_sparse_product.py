"""What a product with sparse matrices multiplies and moves."""

from __future__ import annotations

from presim.trace.signatures import SparseProduct

SIZES = {"m": 100, "n": 16, "k": 200, "nnz": 600, "batch": 1, "dtype": "float32"}


def test_each_nonzero_meets_each_column() -> None:
    assert SparseProduct("spmm", **SIZES).flops == 2 * 600 * 16  # type: ignore[arg-type]


def test_sampled_products_are_as_long_as_the_dimension_that_is_summed() -> None:
    assert SparseProduct("sddmm", **SIZES).flops == 2 * 600 * 200  # type: ignore[arg-type]


def test_bytes_are_values_indices_row_starts_and_dense_sides_once() -> None:
    moved = SparseProduct("spmm", **SIZES).bytes  # type: ignore[arg-type]
    assert moved == 600 * (4 + 4) + 101 * 4 + (200 + 100) * 16 * 4


def test_no_more_dense_rows_are_read_than_there_are_nonzeros() -> None:
    few = SparseProduct("spmm", **{**SIZES, "nnz": 5})  # type: ignore[arg-type]
    assert few.bytes == 5 * (4 + 4) + 101 * 4 + (5 + 100) * 16 * 4


def test_blocks_have_one_index_each() -> None:
    blocks = SparseProduct("spmm", 128, 16, 256, 5 * 1024, 1, "float32", "bsr", block=32)
    assert blocks.bytes == 5 * 1024 * 4 + (5 + 5) * 4 + (256 + 128) * 16 * 4
