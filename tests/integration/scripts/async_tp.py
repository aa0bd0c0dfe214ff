"""A product of what is gathered and one whose sums are scattered, by fused operators; then memory of other GPUs."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

ROWS, WIDTH, INNER = 512, 1024, 4096

dist.init_process_group("nccl")
world = dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
group = dist.group.WORLD.group_name

rows = torch.ones(ROWS, WIDTH, device=device, dtype=torch.bfloat16)
up = torch.ones(WIDTH, INNER, device=device, dtype=torch.bfloat16)
down = torch.ones(INNER, WIDTH, device=device, dtype=torch.bfloat16)
_, (wide,) = torch.ops.symm_mem.fused_all_gather_matmul(rows, [up], 0, group)
assert wide.shape == (ROWS * world, INNER)
own = torch.ops.symm_mem.fused_matmul_reduce_scatter(wide, down, "sum", 0, group)
assert own.shape == rows.shape
try:
    symmetric_memory.rendezvous(rows, group)
except NotImplementedError as error:
    print(error)
else:
    raise AssertionError("memory of the other GPUs was handed out")
