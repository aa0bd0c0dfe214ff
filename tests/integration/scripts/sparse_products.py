"""Products with sparse operands: CSR by cuSPARSE, 2:4 by CUTLASS or cuSPARSELt (`sparse_products.py cutlass`)."""

import sys

import torch
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

ROWS, EACH = 4096, 16


def csr() -> torch.Tensor:
    """``EACH`` non-zeros in each of as many rows as columns."""
    offsets = torch.arange(ROWS + 1, dtype=torch.int32) * EACH
    columns = torch.arange(EACH, dtype=torch.int32).repeat(ROWS)
    return torch.sparse_csr_tensor(offsets, columns, torch.ones(len(columns)), size=(ROWS, ROWS)).cuda()


def main() -> None:
    a, dense = csr(), torch.randn(ROWS, 64, device="cuda")
    a @ dense
    a @ dense[:, 0]
    torch.sparse.sampled_addmm(a, dense, dense.t().contiguous())
    both = a @ a
    print("non-zeros", both.values().numel(), (a + csr()).values().numel())
    SparseSemiStructuredTensor._FORCE_CUTLASS = sys.argv[1:] == ["cutlass"]
    layer = torch.nn.Linear(1024, 2048, device="cuda", dtype=torch.bfloat16)
    pruned = torch.tensor([0, 0, 1, 1], device="cuda", dtype=torch.bfloat16).tile((2048, 256))
    layer.weight = torch.nn.Parameter(to_sparse_semi_structured(pruned), requires_grad=False)
    with torch.no_grad():
        layer(torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16))


if __name__ == "__main__":
    main()
