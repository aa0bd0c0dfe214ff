"""Scaled-dot-product attention with one backend, in four shapes, forward and backward."""

import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def attend(backend, batch, heads, kv_heads, q_len, kv_len, dim, causal):
    """One call and its gradients."""
    shapes = [(batch, heads, q_len, dim), (batch, kv_heads, kv_len, dim), (batch, kv_heads, kv_len, dim)]
    tensors = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for shape in shapes]
    with sdpa_kernel(backend):
        result = scaled_dot_product_attention(*tensors, is_causal=causal, enable_gqa=heads != kv_heads)
    result.sum().backward()


if __name__ == "__main__":
    chosen = BACKENDS[sys.argv[1]]
    attend(chosen, 2, 16, 16, 512, 512, 128, causal=False)
    attend(chosen, 2, 16, 16, 512, 512, 128, causal=True)
    attend(chosen, 3, 8, 8, 256, 1024, 64, causal=False)
    if chosen is not SDPBackend.EFFICIENT_ATTENTION:  # which has no grouped heads
        attend(chosen, 2, 16, 4, 512, 512, 128, causal=True)
