"""A training loop that prints what it measures: step time by the host's clock and by CUDA events, tokens per second."""

import argparse
import json
import time

import torch
from torch import nn


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=5)
    arguments.add_argument("--hidden", type=int, default=4096)
    arguments.add_argument("--tokens", type=int, default=65536)
    options = arguments.parse_args()
    size = options.hidden
    block = [nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)]
    model = nn.Sequential(*block * 2).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = torch.empty(options.tokens, size, device="cuda", dtype=torch.bfloat16)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    for step in range(options.steps):
        started = time.perf_counter()
        begin.record()
        loss = model(data).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        end.record()
        torch.cuda.synchronize()
        took = time.perf_counter() - started
        on_device = begin.elapsed_time(end) / 1e3
        print(
            json.dumps({"step": step, "seconds": took, "events": on_device, "tokens_per_s": options.tokens / took}),
            flush=True,
        )


if __name__ == "__main__":
    main()
