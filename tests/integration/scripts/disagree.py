"""Rank 1 leaves out a reduction, as a condition on the rank in the wrong place does."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
values = torch.ones(1 << 20, device="cuda")
for step in range(3):
    if rank != 1 or step < 2:
        dist.all_reduce(values)
torch.cuda.synchronize()
