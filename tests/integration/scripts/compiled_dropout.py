"""Dropout that is compiled, whose mask is as large as what it drops from, and a product after it."""

import torch

dropped = torch.compile(lambda x, residual: residual + torch.nn.functional.dropout(x, 0.1))
x = torch.zeros(1536, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)  # its mask has 1.5 MiB
weights = torch.zeros(1024, 1024, device="cuda", dtype=torch.bfloat16)
for _ in range(24):
    dropped(x, x) @ weights
torch.cuda.synchronize()
