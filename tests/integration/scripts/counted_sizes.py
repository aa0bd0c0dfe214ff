"""Sizes that the device counts: of merged sparse gradients, and of what masks select, known and unknown."""

import torch

device = "cuda"
table = torch.nn.EmbeddingBag(100_000, 64, sparse=True, mode="sum").to(device)
optimizer = torch.optim.SparseAdam(table.parameters())
ids = torch.arange(60_000, device=device).remainder(50_000).view(-1, 6)
table(ids).sum().backward()
merged = table.weight.grad.coalesce()
assert merged._nnz() == 50_000, merged._nnz()
assert (merged + merged).coalesce()._nnz() == 50_000
pairs = torch.sparse_coo_tensor(torch.tensor([[1, 1, 2], [5, 5, 5]], device=device), torch.ones(3, device=device))
assert pairs.coalesce().indices().tolist() == [[1, 2], [5, 5]]
optimizer.step()

unknown = torch.randn(1000, 1000, device=device)
assert len(unknown.nonzero()) == 1_000_000
assert unknown.to_sparse()._nnz() == 1_000_000
assert len(torch.unique(unknown)) == 1
assert len(unknown[unknown > 0.5]) == 0
