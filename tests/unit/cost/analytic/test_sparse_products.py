"""Products of sparse matrices: what sets their time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.price import Price
from presim.trace.signatures import SparseProduct

LARGE = SparseProduct("spmm", 1 << 20, 256, 1 << 20, 1 << 24, 1, "float32")


def priced(signature: SparseProduct, gpu: str = "h100-sxm") -> Price:
    (price,) = AnalyticEstimator(hardware.gpu(gpu)).price([signature])
    assert price is not None
    assert price.estimator == "analytic/sparse"
    return price


def changed(**fields: Any) -> SparseProduct:
    return msgspec.structs.replace(LARGE, **fields)


def test_rows_that_do_not_fit_the_cache_are_gathered_from_memory() -> None:
    """One GiB of dense rows, gathered sixteen times: at no more than the datasheet's bandwidth."""
    gathered = LARGE.nnz * LARGE.n * 4
    least = gathered / hardware.gpu("h100-sxm").memory_bytes_per_s * 1e9
    assert priced(LARGE).bound == "memory"
    assert 0.9 * least < priced(LARGE).duration_ns < 1.6 * least


def test_rows_that_fit_the_cache_are_gathered_faster() -> None:
    """As many non-zeros over 4096 rows of 4 MiB."""
    assert priced(changed(k=4096)).duration_ns < 0.7 * priced(LARGE).duration_ns


@pytest.mark.parametrize("fields", [{"nnz": LARGE.nnz // 4}, {"n": LARGE.n // 4}, {"dtype": "bfloat16"}])
def test_time_follows_what_is_gathered(fields: dict[str, Any]) -> None:
    assert priced(changed(**fields)).duration_ns < 0.6 * priced(LARGE).duration_ns


def test_blocks_share_the_rows_that_they_gather() -> None:
    assert priced(changed(format="bsr", block=32)).duration_ns < 0.5 * priced(LARGE).duration_ns


def test_a_vector_costs_the_matrix() -> None:
    """Values and indices once, with the elements that they name."""
    vector = changed(operation="spmv", n=1, k=1 << 20)
    moved = vector.nnz * (4 + 4) / hardware.gpu("h100-sxm").memory_bytes_per_s * 1e9
    assert moved < priced(vector).duration_ns < 3 * moved


def test_a_product_of_two_sparse_matrices_costs_its_pairs_and_is_doubted_most() -> None:
    few = changed(operation="spgemm", n=1 << 20, other_nnz=1 << 22, result_nnz=1 << 25)
    more = msgspec.structs.replace(few, other_nnz=1 << 24)
    assert more.products == 4 * few.products
    assert priced(more).duration_ns > 3 * priced(few).duration_ns
    assert priced(few).uncertainty == 0.9 > priced(LARGE).uncertainty


def test_no_nonzeros_cost_a_launch() -> None:
    empty = changed(nnz=0, m=16, n=16)
    assert priced(empty).bound == "latency"
    assert priced(empty).duration_ns < 5000
