"""A message of which a part is filled, as DeepSpeed's pipelines send shapes: what was written arrives."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank % torch.cuda.device_count())
shape = torch.empty(256, dtype=torch.int32, device="cuda")
if rank == 0:
    shape[:3].copy_(torch.tensor([4, 5, 6], dtype=torch.int32))
    dist.send(shape, 1)
else:
    dist.recv(shape, 0)
    assert shape[:3].tolist() == [4, 5, 6], shape[:3].tolist()
