"""ZeRO's check that all ranks have the same long list of numbers, before a step."""

import deepspeed
import torch
from deepspeed.runtime.zero.utils import assert_ints_same_as_other_ranks

if __name__ == "__main__":
    deepspeed.init_distributed("nccl")
    assert_ints_same_as_other_ranks(list(range(10_000)))
    weight = torch.nn.Parameter(torch.ones(8, device="cuda"))
    optimizer = torch.optim.SGD([weight])
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
