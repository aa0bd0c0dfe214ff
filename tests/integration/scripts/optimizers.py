"""A small MLP of 16 layers with the optimizer that the arguments name."""

import sys

import torch
from torch import nn

if __name__ == "__main__":
    name, *flags = sys.argv[1:]
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(16))).cuda()
    arguments = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, **arguments, **dict.fromkeys(flags, True))
    print(f"the optimizer is {name}", flush=True)
    for _ in range(3):
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
