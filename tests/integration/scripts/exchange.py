"""What ranks exchange by NCCL while they run: objects, shapes, flags, split sizes, messages in any order."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())
device = torch.device("cuda")

objects = [None] * world
dist.all_gather_object(objects, {"rank": rank, "shape": [rank, 2 * rank]})
assert objects == [{"rank": r, "shape": [r, 2 * r]} for r in range(world)], objects
chosen = [None if rank else "from rank 0"]
dist.broadcast_object_list(chosen, src=0)  # the size comes first, and is summed on the device
assert chosen == ["from rank 0"], chosen

found_inf = torch.tensor([1.0 if rank == world - 1 else 0.0], device=device)
dist.all_reduce(found_inf, op=dist.ReduceOp.MAX)
assert found_inf.item() == 1.0
mean = torch.tensor([float(rank)], dtype=torch.bfloat16, device=device)
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
assert mean.item() == sum(range(world)) / world

# Uneven splits: each rank first says how much it will send to whom.
sends = torch.tensor([rank + peer + 1 for peer in range(world)], device=device)
receives = torch.empty_like(sends)
dist.all_to_all_single(receives, sends)
assert receives.tolist() == [peer + rank + 1 for peer in range(world)], receives.tolist()
out = torch.zeros(int(receives.cpu().sum()), dtype=torch.int64, device=device)
data = torch.tensor([100 * rank + peer for peer in range(world) for _ in range(rank + peer + 1)], device=device)
dist.all_to_all_single(out, data, receives.tolist(), sends.tolist())
assert out.tolist() == [100 * peer + rank for peer in range(world) for _ in range(peer + rank + 1)], out.tolist()

# Two groups in another order on each rank, as pipeline stages have them, and a receive before its send.
ends = dist.new_group([0, world - 1])
evens = dist.new_group(list(range(0, world, 2)))
before, after = (rank - 1) % world, (rank + 1) % world
message = torch.tensor([10 * rank, 1], device=device)
arrived = torch.zeros(2, dtype=torch.int64, device=device)
works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, arrived, before), dist.P2POp(dist.isend, message, after)])
for work in works:
    work.wait()
total = torch.tensor([rank], device=device)
if rank in (0, world - 1):
    dist.all_reduce(total, group=ends)
    assert total.item() == world - 1
if rank % 2 == 0:
    gathered = torch.empty(len(range(0, world, 2)), dtype=torch.int64, device=device)
    dist.all_gather_into_tensor(gathered, torch.tensor([rank], device=device), group=evens)
    assert gathered.tolist() == list(range(0, world, 2))
assert arrived.tolist() == [10 * before, 1], arrived.tolist()

# Unevenly spaced.
uneven = [0, 1, 3] if world == 4 else [0, 1]
group = dist.new_group(uneven)
if rank in uneven:
    total = torch.tensor([rank + 1], device=device)
    dist.all_reduce(total, group=group)
    assert total.item() == sum(uneven) + len(uneven)

# Not batched: PyTorch makes a communicator of the two ranks alone.
if rank == 0:
    dist.send(torch.tensor([7], device=device), world - 1)
elif rank == world - 1:
    got = torch.zeros(1, dtype=torch.int64, device=device)
    dist.recv(got, 0)
    assert got.item() == 7

# In a CUDA graph: each replay exchanges what the ranks hold then.
counted = torch.tensor([float(rank)], device=device)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
    counted.add_(1)
    summed = counted * 1
    dist.all_reduce(summed)
for replay in (1, 2):
    graph.replay()
    assert summed.item() == sum(range(world)) + replay * world, summed.item()
del graph
dist.barrier()
dist.destroy_process_group()
