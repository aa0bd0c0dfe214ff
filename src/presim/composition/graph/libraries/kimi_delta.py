"""Kimi's delta attention as flash-linear-attention computes it, kernel by kernel.

It is the gated delta rule with a decay for each channel of a key. Tensors are [batch, sequence, heads, size of a head].
The sequence is cut into chunks of 64 tokens; a last chunk that is not full is counted by its tokens. The backward pass
makes the WY representation and the states again.
"""

from __future__ import annotations

from typing import Any

import torch

from presim.composition.graph.libraries import delta_rule
from presim.composition.graph.libraries.delta_rule import CHUNK
from presim.composition.graph.libraries.library_kernels import launch


def chunk_kda(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **ignored: Any,
) -> tuple[torch.Tensor, None]:
    """The outputs, shaped as ``value``, and no final state."""
    tensors = (tensor.contiguous() for tensor in (query, key, value, g, beta))
    return _KimiDelta.apply(*tensors, use_qk_l2norm_in_kernel), None


class _KimiDelta(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        normalise: bool,
    ) -> torch.Tensor:
        query, query_scale = delta_rule.normalised(query) if normalise else (query, None)
        key, key_scale = delta_rule.normalised(key) if normalise else (key, None)
        decay = g.new_empty(g.shape, dtype=torch.float32)
        launch("chunk_local_cumsum_vector_kernel", [g], [decay])
        scores, inverse = (key.new_empty(*value.shape[:3], CHUNK) for _ in range(2))
        reads = [key, query, decay, beta]
        launch("chunk_kda_fwd_kernel_intra_sub_chunk", reads, [scores, inverse], CHUNK)  # a quarter: its diagonal
        launch("chunk_kda_fwd_kernel_inter_solve_fused", reads, [scores, inverse], 3 * CHUNK)
        w, u, decayed_key = _w_and_u(key, value, beta, decay, inverse)
        states, new_value = delta_rule.states_of(decayed_key, w, u, decay)
        out = torch.empty_like(value)
        launch("chunk_gla_fwd_kernel_o", [new_value, query, decay, scores, states], [out], 2 * (key.shape[3] + CHUNK))
        context.save_for_backward(query, query_scale, key, key_scale, value, decay, beta, scores, inverse)
        return out

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        query, query_scale, key, key_scale, value, decay, beta, scores, inverse = context.saved_tensors
        gradient, size = gradients[0], key.shape[3]
        w, u, decayed_key = _w_and_u(key, value, beta, decay, inverse)
        states, new_value = delta_rule.states_of(decayed_key, w, u, decay)
        d_scores, local = _fp32(scores), torch.empty_like(value)
        launch("chunk_kda_bwd_kernel_dAv", [gradient, new_value, scores], [d_scores, local], 4 * CHUNK)
        d_states, d_new = torch.empty_like(states), torch.empty_like(value)
        reads = [gradient, query, decayed_key, w, local, decay]
        launch("chunk_gated_delta_rule_bwd_kernel_dhu_blockdim64", reads, [d_states, d_new], 3 * 2 * size)
        del local
        d_query, d_key, d_decay, d_beta, d_inverse = (_fp32(tensor) for tensor in (query, key, decay, beta, inverse))
        d_value = torch.empty_like(value)
        flops_per_element = 6 * size + 4 * CHUNK + (4 * CHUNK * size + 4 * CHUNK * CHUNK) // value.shape[3]
        reads = [gradient, query, key, value, new_value, decay, beta, inverse, states, d_states, d_new]
        writes = [d_query, d_key, d_value, d_decay, d_beta, d_inverse]
        launch("chunk_kda_bwd_kernel_wy_dqkg_fused", reads, writes, flops_per_element)
        del states, d_states, new_value, d_new, w, u, decayed_key
        intra_gradients = [_fp32(tensor) for tensor in (query, key, decay, beta)]
        reads = [key, query, decay, beta, d_scores, d_inverse, d_query, d_key, d_decay, d_beta]
        launch("chunk_kda_bwd_kernel_intra", reads, intra_gradients, 8 * CHUNK)
        d_g = _fp32(decay)
        launch("chunk_local_cumsum_vector_kernel", [intra_gradients[2]], [d_g])
        parts = [gradient_part.to(query.dtype) for gradient_part in intra_gradients[:2]]
        if query_scale is not None:
            parts[0] = delta_rule.normalised_backward(query, query_scale, parts[0])
            parts[1] = delta_rule.normalised_backward(key, key_scale, parts[1])
        return *parts, d_value, d_g, intra_gradients[3].to(beta.dtype), None


def _fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty(tensor.shape, dtype=torch.float32)


def _w_and_u(
    key: torch.Tensor, value: torch.Tensor, beta: torch.Tensor, decay: torch.Tensor, inverse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The keys and values of the WY representation, and keys that decay to the end of their chunk."""
    w, u, decayed_key = torch.empty_like(key), torch.empty_like(value), torch.empty_like(key)
    flops = 2 * CHUNK * (key.shape[3] + value.shape[3]) // value.shape[3]
    launch("recompute_w_u_fwd_kda_kernel", [value, key, beta, inverse, decay], [w, u, decayed_key], flops)
    return w, u, decayed_key
