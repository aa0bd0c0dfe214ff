"""The steps that `live.py` times: a small network on one GPU that reads its loss in each step, and its memory."""

import argparse
import os

import torch

SHOWN = 5


def held(process: str) -> float:
    """MB of a process's private memory, without files such as the capture log."""
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024 / 1e6


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
steps = parser.parse_args().steps
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
data = torch.randn(64, 512, device="cuda")
for step in range(1, steps + 1):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    end.record()
    loss.item()
    if step % max(1, steps // SHOWN) == 0:
        print(f"| {step} | {held('self'):.0f} | {held(str(os.getppid())):.0f} |", flush=True)
