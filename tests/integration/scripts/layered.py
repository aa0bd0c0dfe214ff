"""Train a small model of several equal layers, in one of several ways."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

way, num_layers = sys.argv[1], int(sys.argv[2])
micro_batches = int(sys.argv[3]) if len(sys.argv) > 3 else 1
ROWS, WIDTH, STEPS = 64, 512, 2

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


class Layer(nn.Module):
    """Attention over one head and a feed-forward part."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)
        self.up, self.down = nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mixed(self.norm(rows)).chunk(3, dim=-1)
        rows = rows + torch.softmax(query @ key.T, dim=-1) @ value
        return rows + self.down(nn.functional.gelu(self.up(rows)))


class Model(nn.Module):
    """An embedding, layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, WIDTH)
        widths = [(4 if way != "differing" or number % 2 else 2) * WIDTH for number in range(num_layers)]
        self.layers = nn.ModuleList(Layer(width) for width in widths)
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        rows = self.embedding(words)
        for layer in self.layers:
            rows = checkpoint(layer, rows, use_reentrant=False) if way == "checkpoint" else layer(rows)
        return self.head(rows)


model: nn.Module = Model().cuda()
if way in ("fsdp", "checkpoint", "differing"):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
elif way in ("ddp", "buckets"):  # a bucket for each parameter, or one for several layers
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1 if way == "ddp" else 25)
    # NCCL's watchdog frees what was sent of all parameters, at its next look: before the first step
    dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))._wait_for_pending_works()
optimizer: torch.optim.Optimizer = (
    torch.optim.SGD(model.parameters(), momentum=0.9) if way == "sgd" else torch.optim.AdamW(model.parameters())
)
for _ in range(STEPS):
    for _ in range(micro_batches):
        words = torch.randint(1000, (ROWS,), device="cuda")
        nn.functional.cross_entropy(model(words), words).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
