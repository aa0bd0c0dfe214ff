"""1F1B by hand: each rank is a stage with two layers. The argument is the number of micro-batches."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

WIDTH, MICRO_BATCHES = 1024, int(sys.argv[1])
rank, stages = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(WIDTH, WIDTH, device="cuda")
held: list[tuple[torch.Tensor, torch.Tensor]] = []


def exchange(sent: torch.Tensor | None, to: int, received_from: int) -> torch.Tensor | None:
    """Send a tensor to a rank and receive one; None: there is none, as with ranks beyond the ends."""
    received = torch.empty(WIDTH, WIDTH, device="cuda") if received_from in range(stages) else None
    operations = [dist.P2POp(dist.isend, sent, to)] if sent is not None and to in range(stages) else []
    operations += [dist.P2POp(dist.irecv, received, received_from)] if received is not None else []
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()
    torch.cuda.synchronize()  # as Megatron does after messages, so that their blocks return
    return received


def forward(received: torch.Tensor | None) -> torch.Tensor:
    leaf = inputs if received is None else received.requires_grad_()
    output = model(leaf)
    held.append((leaf, output if rank < stages - 1 else output.square().mean()))
    return output.detach()


def backward(gradient: torch.Tensor | None) -> torch.Tensor | None:
    leaf, output = held.pop(0)
    output.backward(gradient)
    return leaf.grad


for _ in range(3):
    optimizer.zero_grad()
    ahead = min(stages - rank - 1, MICRO_BATCHES)
    for _ in range(ahead):
        exchange(forward(exchange(None, -1, rank - 1)), rank + 1, -1)
    received = exchange(None, -1, rank - 1)
    for number in range(MICRO_BATCHES - ahead):
        gradient = backward(exchange(forward(received), rank + 1, rank + 1))
        is_last = number == MICRO_BATCHES - ahead - 1
        received = exchange(gradient, rank - 1, -1 if is_last else rank - 1)
    for _ in range(ahead):
        exchange(backward(exchange(None, -1, rank + 1)), rank - 1, -1)
    optimizer.step()
