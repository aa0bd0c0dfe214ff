"""An MLP whose training needs about 50 GiB: it runs out of memory on a 40 GB GPU and fits on an 80 GB one.

presim run --gpu a100-sxm4-40gb examples/out_of_memory.py
"""

import torch
from torch import nn


def main() -> None:
    """Three steps on random vectors."""
    width, depth = 16384, 12  # 3.2 G parameters: 6.0 GiB in bf16, as much of gradients, two moments
    where = {"device": "cuda", "dtype": torch.bfloat16}
    model = nn.Sequential(*(nn.Linear(width, width, bias=False, **where) for _ in range(depth)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(3):
        inputs = torch.randn(65536, width, device="cuda", dtype=torch.bfloat16)
        model(inputs).float().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
