"""A compiled layer under DDP; each rank writes into a folder how many graphs it compiled and read from the cache."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
layer = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)).cuda()
model = nn.parallel.DistributedDataParallel(torch.compile(layer), device_ids=[rank])
for _ in range(2):
    positions = torch.arange(64, device="cuda").float()
    model(positions.repeat(32, 1)).square().mean().backward()

from torch._dynamo.utils import counters  # noqa: E402

found = {name: dict(counters[name]) for name in ("aot_autograd", "inductor")}
Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(found))
