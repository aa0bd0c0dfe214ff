"""What training scripts decide by values of large tensors: scaling, clipping, overflow checks, early stopping."""

import torch
from torch import nn

device = "cuda"
model = nn.Sequential(nn.Embedding(4096, 1024), nn.Linear(1024, 4096)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler(init_scale=2.0**16, growth_interval=2)
tokens = torch.randint(4096, (8, 512), device=device)
losses = []
for epoch in range(10):
    with torch.no_grad():  # an evaluation, of other tokens than the step's
        nn.Sequential(model)(tokens.tile(3, 1))
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    assert abs(norm.item() - 4.0) < 1e-3  # --values gradient_norm=4
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    checked = float(flat.float().sum())  # as DeepSpeed looks for overflow
    assert checked not in (float("inf"), -float("inf"))
    assert checked == checked
    assert not torch.isinf(flat).any()
    assert not torch.isnan(flat).any()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    losses.append(loss.item())
    if losses[-1] < 2.6:  # early stopping
        break
assert losses == [3.0, 2.75, 2.5]  # --values loss=3,2.75,2.5
assert scaler.get_scale() == 2.0**17  # grown once: two steps without overflow
assert optimizer.state[model[0].weight]["step"].item() == 3  # none was skipped
batch = tokens[tokens % 2 == 0]
assert 0 < batch.numel() < tokens.numel()
