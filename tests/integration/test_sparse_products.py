"""Products with sparse operands have sizes and non-zeros, and prices follow from them."""

from __future__ import annotations

import pytest

from presim.trace.signatures import Gemm, Kernel, SparseProduct
from support.captured import Job, run

pytestmark = pytest.mark.torch_cuda

ROWS, NONZEROS = 4096, 4096 * 16


def captured(*arguments: str) -> Job:
    return run("sparse_products.py", *arguments, gpu="a100-80gb-sxm")


def test_products_of_cusparse_have_their_sizes_and_nonzeros() -> None:
    """No kernel is known by name only."""
    found = [one for one in captured().trace.signatures if isinstance(one, SparseProduct)]
    assert [(one.operation, one.m, one.n, one.k, one.nnz) for one in found] == [
        ("spmm", ROWS, 64, ROWS, NONZEROS),
        ("spmv", ROWS, 1, ROWS, NONZEROS),
        ("sddmm", ROWS, ROWS, 64, NONZEROS),
        ("spgemm", ROWS, ROWS, ROWS, NONZEROS),
    ]
    assert [one.name for one in captured().trace.signatures if isinstance(one, Kernel)] == []


def test_the_size_of_a_sparse_result_comes_from_a_policy_with_a_note() -> None:
    """16 * 16 pairs per row on 4096 places: 248 are distinct, which the program reads."""
    notes = [note for note in captured().result.notes if "has as many non-zeros" in note]
    (product,) = (one for one in captured().trace.signatures if getattr(one, "operation", "") == "spgemm")
    assert product.result_nnz == 1_016_480  # type: ignore[union-attr]
    assert ["the first: 1016480, at most 1048576" in note for note in notes] == [True, False]
    assert "sparse sum" in notes[1]
    assert "the first: 130816, at most 131072" in notes[1]


@pytest.mark.parametrize("backend", ["cutlass", "cusparselt"])
def test_a_layer_with_2_4_weights_is_a_structured_sparse_product(backend: str) -> None:
    """CUTLASS has the weights on the left; cuSPARSELt's row-major product has them on the right."""
    (layer,) = (one for one in captured(backend).trace.signatures if isinstance(one, Gemm))
    cutlass = backend == "cutlass"
    assert (layer.m, layer.n, layer.k) == ((2048, 512, 1024) if cutlass else (512, 2048, 1024))
    assert layer.sparsity == ("2:4 a" if cutlass else "2:4 b")
    assert layer.epilogue == "bias"
    assert layer.flops == 2048 * 512 * 1024
