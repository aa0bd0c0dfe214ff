"""A step captured into a CUDA graph and replayed, as trainers do that hide their host's time."""

import torch
from torch import nn


def main() -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
    batch = torch.ones(64, 256, device="cuda")

    def forward_and_backward() -> None:
        model(batch).sum().backward()

    forward_and_backward()
    optimizer.step()
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        forward_and_backward()
    for _ in range(3):
        graph.replay()
        optimizer.step()


if __name__ == "__main__":
    main()
