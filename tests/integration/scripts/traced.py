"""A model that is traced before it trains: what a tracer passes through modules has no storage that one may look at."""

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).cuda()
with FakeTensorMode(allow_non_fake_inputs=True):
    make_fx(torch.func.functionalize(model))(torch.empty(64, 256, device="cuda"))
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.ones(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
