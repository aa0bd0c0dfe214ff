"""Much small work of every kind whose course depends on no value: in place, out=, views, foreach, graphs, backward."""

import torch
from torch import nn

device = "cuda"
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 64))
model = model.to(device)
large = nn.Linear(2048, 2048, device=device)
optimizer = torch.optim.AdamW([*model.parameters(), *large.parameters()], foreach=True)
tokens = torch.randint(64, (4, 16), device=device)
scaler = torch.amp.GradScaler()
for _ in range(2):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(tokens).view(-1, 64), tokens.view(-1))
        loss = loss + large(torch.randn(8, 2048, device=device)).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()

sums = torch.empty(16, device=device)
torch.sum(tokens.float(), dim=0, out=sums)
sums[::2].mul_(2)
sums.view(4, 4).t().contiguous().sort(dim=1)
torch._foreach_add_([sums, sums.clone()], 1.0)
sums.scatter_(0, tokens[0] % 16, 1.0).topk(3)
tokens.view(-1).bincount(minlength=64).cumsum(0)

static = torch.zeros(8, device=device)
graph = torch.cuda.CUDAGraph()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    static.mul(2).sum()
torch.cuda.current_stream().wait_stream(side)
with torch.cuda.graph(graph):
    static.add_(1)
    result = static.mul(2).sum()
graph.replay()
graph.replay()
print(result.item())
