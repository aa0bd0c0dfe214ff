"""Two stages of a pipeline on two ranks: the second waits for the first in every step, and both print how long."""

import json
import os
import time

import torch
import torch.distributed as dist

SIZE = 8192


def main() -> None:
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    weight = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    data = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    for step in range(4):
        started = time.perf_counter()
        if rank == 0:
            for _ in range(20):
                data = data @ weight
            dist.send(data, 1)
            dist.recv(data, 1)
        else:
            dist.recv(data, 0)
            for _ in range(10):
                data = data @ weight
            dist.send(data, 0)
        torch.cuda.synchronize()
        line = json.dumps({"rank": rank, "step": step, "seconds": time.perf_counter() - started})
        os.write(1, f"{line}\n".encode())  # in one piece: both ranks print into one pipe


if __name__ == "__main__":
    main()
