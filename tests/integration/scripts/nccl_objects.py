"""Objects of all sizes through tensors on the device, and a checkpoint of shards in the folder that is named."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
for length in (10, 300_000):
    collected: list[object] | None = [None] * world if rank == 0 else None
    dist.gather_object("x" * length, collected, dst=0)
    assert collected == (["x" * length] * world if rank == 0 else None)
    gathered: list[object] = [None] * world
    dist.all_gather_object(gathered, {"bytes": b"y" * length})
    assert gathered == [{"bytes": b"y" * length}] * world
    given: list[object] = [None]
    dist.scatter_object_list(given, ["z" * length] * world if rank == 0 else None, src=0)
    told: list[object] = ["t" * length]
    dist.broadcast_object_list(told, src=0)
    assert given + told == ["z" * length, "t" * length]

model = torch.nn.Linear(256, 64 * world, device="cuda")
fully_shard(model)
states = {"model": get_model_state_dict(model), "steps": 3}
dcp.save(states, checkpoint_id=sys.argv[1])
dcp.load(states, checkpoint_id=sys.argv[1])
model(torch.ones(4, 256, device="cuda")).sum().backward()
