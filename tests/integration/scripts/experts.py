"""A mixture of experts whose experts are spread over the ranks: token counts decide split sizes and products."""

import os

import torch
import torch.distributed as dist
from torch import nn

EXPERTS, CHOSEN, WIDTH, TOKENS = 32, 4, 1024, 4096


class Experts(nn.Module):
    """Router, dispatch, the experts of this rank, combine."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.local = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(EXPERTS // ranks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, width] to a sum over the outputs of the tokens that came here."""
        chosen = self.router(x).softmax(-1).topk(CHOSEN).indices
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        sends = counts.view(self.ranks, -1).sum(1).tolist()
        receives = arriving.view(self.ranks, -1).sum(1).tolist()
        order = chosen.flatten().argsort(stable=True)
        rows = x[order // CHOSEN]
        assert sum(sends) == rows.shape[0]
        received = torch.empty(sum(receives), WIDTH, device=x.device, dtype=x.dtype)
        dist.all_to_all_single(received, rows.detach(), receives, sends)
        received.requires_grad_()
        mine = arriving.view(self.ranks, -1).sum(0).tolist()
        parts = received.split(mine)
        return sum(expert(part).sum() for expert, part in zip(self.local, parts) if part.shape[0])


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = Experts(dist.get_world_size()).cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)).backward()
    optimizer.step()
    optimizer.zero_grad()
