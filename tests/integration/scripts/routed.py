"""Tokens routed by numbers that nobody knows; prints how many each expert gets."""

import torch

EXPERTS, TOKENS = 4, 8192
logits = torch.randn(TOKENS, 2048, device="cuda") @ torch.randn(2048, EXPERTS, device="cuda")
chosen = logits.softmax(-1).topk(1).indices
print("counts", *torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist())
