"""Layers of experts as grouped products; with ``checkpoint`` each is computed again in backward.

Prints how many tokens each layer's experts get, in each of its forwards.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

TOKENS, EXPERTS, WIDTH, HIDDEN, CHOSEN, LAYERS = 4096, 16, 256, 512, 2, 3


class Experts(nn.Module):
    """A router and its experts' two products."""

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, width] to the same, each token by the experts that the router chose."""
        chosen = self.router(x).softmax(-1).topk(CHOSEN).indices.flatten()
        counts = torch.bincount(chosen, minlength=EXPERTS)
        words = ("layer", os.environ.get("RANK", 0), self.layer, *counts.tolist())
        os.write(1, (" ".join(map(str, words)) + "\n").encode())  # whole lines, of several ranks
        order = chosen.argsort(stable=True) // CHOSEN
        ends = counts.cumsum(0).to(torch.int32)
        hidden = torch._grouped_mm(x[order], self.up, offs=ends).relu()
        return x.index_add(0, order, torch._grouped_mm(hidden, self.down, offs=ends))


class Model(nn.Module):
    """Several of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Experts(layer) for layer in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through all of them."""
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if "checkpoint" in sys.argv else layer(x)
        return x


def main() -> None:
    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
    model = Model().cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
