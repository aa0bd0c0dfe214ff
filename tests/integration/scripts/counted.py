"""How many zeros are in a tensor, again and again: PyTorch widens what it compares to 24 MiB of integers."""

import torch

x = torch.zeros(3 << 20, device="cuda")
for _ in range(24):
    torch.count_nonzero(x)
torch.cuda.synchronize()
