"""Calls a model of many parameters that uses few of them, and says how long a call takes with all that observes it."""

from __future__ import annotations

import time

import torch
from torch import nn


class Unused(nn.Module):
    """Small parameters that only have to be named."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(8) for _ in range(20))


class Model(nn.Module):
    """Looks tokens up, no more."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.unused = nn.ModuleList(Unused() for _ in range(100))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """``tokens`` [batch]; returns [batch, 8]."""
        found: torch.Tensor = self.embedding(tokens)
        return found


model = Model().cuda()
optimizer = torch.optim.SGD([model.embedding.weight], lr=0.1)
tokens = torch.zeros(8, dtype=torch.int64, device="cuda")
for _ in range(6):
    start = time.thread_time_ns()
    found = model(tokens)
    print("took", time.thread_time_ns() - start)
    found.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
