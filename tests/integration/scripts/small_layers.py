"""Small layers that the device computes with libraries hold what the CPU would; each line fails where one does not."""

import copy

import torch
from torch import nn

DEVICE = "cuda"
torch.manual_seed(0)


def alike(layer: nn.Module, x: torch.Tensor, train: bool = True) -> None:
    """Outputs, running statistics and gradients on the device and on the host."""
    there = copy.deepcopy(layer).to(DEVICE).train(train)
    layer.train(train)
    expected, found = layer(x), there(x.to(DEVICE))
    torch.testing.assert_close(found.cpu(), expected)
    if train:
        expected.square().sum().backward()
        found.square().sum().backward()
        for a, b in zip(layer.parameters(), there.parameters(), strict=True):
            torch.testing.assert_close(b.grad.cpu(), a.grad, atol=1e-4, rtol=1e-4)
    for a, b in zip(layer.buffers(), there.buffers(), strict=True):
        torch.testing.assert_close(b.cpu(), a)


alike(nn.BatchNorm1d(3), torch.randn(5, 3))
alike(nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4))
alike(nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4), train=False)
alike(nn.Conv2d(3, 4, 3, padding=1, stride=2), torch.randn(2, 3, 8, 8))
alike(nn.Conv2d(4, 4, 3, padding=1, groups=4), torch.randn(2, 4, 8, 8))
alike(nn.Conv1d(3, 4, 3, dilation=2), torch.randn(2, 3, 8))
alike(nn.ConvTranspose2d(3, 4, 3, padding=1, stride=2, output_padding=1), torch.randn(2, 3, 8, 8))
alike(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten()), torch.randn(2, 3, 8, 8))

a, b = torch.randn(2, 3, 4).bfloat16(), torch.randn(2, 4, 5).bfloat16()  # a router's product, in a wider type
wide = torch.mm(a[0].to(DEVICE), b[0].to(DEVICE), out_dtype=torch.float32)
torch.testing.assert_close(wide.cpu(), a[0].float() @ b[0].float())
wide = torch.bmm(a.to(DEVICE), b.to(DEVICE), out_dtype=torch.float32)
torch.testing.assert_close(wide.cpu(), a.float() @ b.float())
