"""A small block under torch.compile, in the mode that is named: two products, the rest fused by Triton."""

import sys

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256)).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
compiled = torch.compile(model, mode=sys.argv[1] if sys.argv[1:] else None)
for _ in range(5):
    inputs = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    compiled(inputs).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
