"""One step after the other of a pipeline of equal stages, by any schedule that PyTorch has."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

name, micro_batches = sys.argv[1], int(sys.argv[2])
WIDTH, ROWS, LAYERS = 8192, 2048, 2

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
kind = schedules.get_schedule_class(name)
several = issubclass(kind, schedules.PipelineScheduleMulti)
v_shaped = name in ("ZBVZeroBubble", "DualPipeV")
if not several:
    own = [rank]
elif v_shaped:
    own = [rank, 2 * world - 1 - rank]
else:
    own = [rank, rank + world]
count = world * len(own)


def make(index: int) -> PipelineStage:
    layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(LAYERS)))
    return PipelineStage(layers.to(device), index, count, device)


stages = [make(index) for index in own]
optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=1e-3)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


runner = kind(stages if several else stages[0], micro_batches, loss_fn=loss_of)
batch = torch.randn(ROWS * micro_batches, WIDTH, device=device, dtype=torch.bfloat16)
for _ in range(3):
    optimizer.zero_grad()
    first, last = 0 in own, count - 1 in own
    losses: list[torch.Tensor] = []
    runner.step(*((batch,) if first else ()), **({"target": batch, "losses": losses} if last else {}))
    optimizer.step()
