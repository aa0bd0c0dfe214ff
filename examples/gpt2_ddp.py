"""Train a GPT-2 (124M) with DistributedDataParallel and autocast, as nanoGPT does.

presim run --gpu h100-sxm --nodes 1 examples/gpt2_ddp.py
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    """Three steps on random tokens."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    model = DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])])
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1)
    for step in range(3):
        tokens = torch.randint(50257, (12, 1024), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
