"""Two layers compiled with every autotuner that inductor has, save CUDA graphs."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.LayerNorm(256)).cuda().bfloat16()
compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    rows = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16)
    compiled(rows).float().pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
