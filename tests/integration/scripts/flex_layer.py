"""A compiled layer with flex attention between products: inductor hands over heads as the products leave them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BATCH, LENGTH, WIDTH, HEADS, KV_HEADS, DIM = 2, 512, 256, 8, 2, 64


class Layer(nn.Module):
    """Grouped queries; positions before heads until attention."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.ModuleList(nn.Linear(WIDTH, heads * DIM, bias=False) for heads in (HEADS, KV_HEADS, KV_HEADS))

    def forward(self, x: torch.Tensor, mask) -> torch.Tensor:
        parts = [project(x).view(BATCH, LENGTH, -1, DIM).transpose(1, 2) for project in self.project]
        return flex_attention(*parts, block_mask=mask, enable_gqa=True).transpose(1, 2).reshape(BATCH, LENGTH, -1)


if __name__ == "__main__":
    layer = torch.compile(Layer().to("cuda", torch.bfloat16))
    mask = create_block_mask(lambda batch, head, query, key: query >= key, None, None, LENGTH, LENGTH)
    x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    layer(x, mask).sum().backward()
