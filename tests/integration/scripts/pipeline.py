"""A pipeline of torch.distributed.pipelining over the outer dimension of a mesh, data parallel inside; 1F1B."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

STAGES, MICRO_BATCHES = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 1 else (4, 8)
WIDTH, ROWS = 8192, 2048  # large enough that no host limits the step

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
mesh = init_device_mesh("cuda", (STAGES, dist.get_world_size() // STAGES), mesh_dim_names=("pp", "dp"))
pipeline = mesh["pp"]
stage = pipeline.get_local_rank()

torch.manual_seed(stage)
layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2 + (stage == STAGES - 1))]  # the last stage has more
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters())
group = pipeline.get_group()
runner = Schedule1F1B(
    PipelineStage(model, stage, STAGES, device, group=group),  # stages tell each other their shapes
    MICRO_BATCHES,
    loss_fn=lambda output, target: (output - target).square().mean(),
)
batch = torch.randn(ROWS * MICRO_BATCHES, WIDTH, device=device)
for step in range(3):
    optimizer.zero_grad()
    if stage == 0:
        runner.step(batch)
    elif stage == STAGES - 1:
        runner.step(target=batch)
    else:
        runner.step()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=mesh["dp"].get_group())
    optimizer.step()
print("stage", stage, "of", STAGES, "on rank", dist.get_rank())
