"""Train a small model with gradient accumulation, in one of several ways."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

way, micro_batches = sys.argv[1], int(sys.argv[2])
ROWS, WIDTH, STEPS = 64, 256, 2

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


class Block(nn.Module):
    """A feed-forward block that may be computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if way == "checkpoint":
            return rows + checkpoint(self.inner, rows, use_reentrant=False)
        return rows + self.inner(rows)

    def inner(self, rows: torch.Tensor) -> torch.Tensor:
        return self.down(torch.nn.functional.gelu(self.up(rows)))


model: nn.Module = nn.Sequential(*(Block() for _ in range(3))).cuda()
if way == "fsdp":
    for block in model:
        fully_shard(block)
    fully_shard(model)
else:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
samples = TensorDataset(torch.randn(ROWS * micro_batches * (STEPS + 1), WIDTH))
batches = iter(DataLoader(samples, batch_size=ROWS, num_workers=2 if way == "workers" else 0))


def loss_of(index: int) -> torch.Tensor:
    rows = torch.randn(4 * ROWS, WIDTH, device="cuda") if way == "larger_first" and index == 0 else next(batches)[0]
    return model(rows.cuda(non_blocking=True)).square().mean() / micro_batches


for _ in range(STEPS):
    kept = []
    if way == "forward_first":
        for loss in [loss_of(index) for index in range(micro_batches)]:
            loss.backward()
    for index in range(micro_batches if way != "forward_first" else 0):
        if way != "fsdp":
            model.require_backward_grad_sync = index == micro_batches - 1
        loss = loss_of(index)
        loss.backward()
        kept.append(loss.detach())
        if way == "outputs":
            kept.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))
    if way != "forward_first":
        torch.stack(kept[:1]).mean().item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
