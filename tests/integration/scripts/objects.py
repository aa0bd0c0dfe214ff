"""What ranks tell each other over the CPU, each printed as one line: name, rank, value."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

dist.init_process_group("cpu:gloo,cuda:nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
group = dist.new_group(backend="gloo")


def say(name: str, value: object) -> None:
    os.write(1, f"{name} {rank} {value}\n".encode())


gathered: list[object] = [None] * world
dist.all_gather_object(gathered, "x" * (rank + 1), group=group)
say("all_gather", gathered)
told = [f"from {rank}"]
dist.broadcast_object_list(told, src=world - 1, group=group)
say("broadcast", told)
given: list[object] = [None]
dist.scatter_object_list(given, [f"for {each}" for each in range(world)] if rank == 0 else None, src=0, group=group)
say("scatter", given)
dist.scatter_object_list(given, [f"for {each}" for each in range(world)], group=group)
say("scattered by all", given)
collected: list[object] | None = [None] * world if rank == 0 else None
dist.gather_object(rank * 10, collected, dst=0, group=group)
say("gather", collected)
dist.barrier(group=group)
dist.monitored_barrier(group=group)
total = torch.tensor([float(rank)])
dist.all_reduce(total, group=group)
say("sum", total.item())
if rank == 0:
    dist.send(torch.tensor([7]), dst=world - 1, group=group)
if rank == world - 1:
    message = torch.zeros(1, dtype=torch.int64)
    dist.recv(message, src=0, group=group)
    say("recv", message.item())
torch.ones(1000, device="cuda").sum()
