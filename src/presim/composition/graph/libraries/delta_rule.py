"""The gated delta rule as flash-linear-attention 0.6 computes it, kernel by kernel.

Tensors of queries and keys are [batch, sequence, key heads, key size], of values [batch, sequence, value heads, value
size]. The sequence is cut into chunks of 64 tokens; a last chunk that is not full is counted by its tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from presim.composition.graph.libraries.library_kernels import launch

CHUNK = 64


def chunk_gated_delta_rule(
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
    return _GatedDeltaRule.apply(*tensors, use_qk_l2norm_in_kernel), None


class _GatedDeltaRule(torch.autograd.Function):
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
        query, query_scale = normalised(query) if normalise else (query, None)
        key, key_scale = normalised(key) if normalise else (key, None)
        decay = torch.empty_like(g)
        launch("chunk_local_cumsum_scalar_kernel", [g], [decay])
        inverse = key.new_zeros(*value.shape[:3], CHUNK)
        group = value.shape[2] // key.shape[2]
        launch("chunk_gated_delta_rule_fwd_kkt_solve_kernel", [key, decay, beta], [inverse], 4 * CHUNK * group)
        w, u = _w_and_u(key, value, beta, decay, inverse)
        states, new_value = states_of(key, w, u, decay)
        out = torch.empty_like(value)
        flops = 2 * (key.shape[3] + CHUNK) + 2 * CHUNK * key.shape[3] // value.shape[3]
        launch("chunk_fwd_kernel_o", [new_value, query, key, states, decay], [out], flops)
        context.save_for_backward(query, query_scale, key, key_scale, value, decay, beta, inverse)
        return out

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        query, query_scale, key, key_scale, value, decay, beta, inverse = context.saved_tensors
        gradient = gradients[0]
        w, u = _w_and_u(key, value, beta, decay, inverse)
        states, new_value = states_of(key, w, u, decay)
        local = torch.empty_like(value)
        flops = 2 * CHUNK * (key.shape[3] + value.shape[3]) // value.shape[3]
        launch("chunk_bwd_kernel_dv_local", [gradient, query, key, decay], [local], flops)
        d_states, d_new = torch.empty_like(states), torch.empty_like(value)
        reads = [gradient, query, key, w, local, decay]
        launch("chunk_gated_delta_rule_bwd_kernel_dhu_blockdim64", reads, [d_states, d_new], 3 * 2 * key.shape[3])
        del local
        d_query, d_key, d_w, d_decay = (torch.empty_like(w), torch.empty_like(w), torch.empty_like(w), decay.clone())
        reads = [gradient, query, key, new_value, states, decay, d_states, d_new]
        launch("chunk_bwd_kernel_dqkwg", reads, [d_query, d_key, d_w, d_decay], 6 * key.shape[3] + 6 * CHUNK)
        del states, d_states, new_value
        d_query, d_key = _over_group(d_query, key), _over_group(d_key, key)
        more_key, d_value, d_beta, more_decay = (
            torch.empty_like(w),
            torch.empty_like(value),
            torch.empty_like(beta),
            torch.empty_like(decay),
        )
        reads = [w, key, value, beta, decay, inverse, d_w, d_new]
        launch("prepare_wy_repr_bwd_kernel", reads, [more_key, d_value, d_beta, more_decay], 16 * CHUNK)
        d_key += _over_group(more_key, key)
        d_decay += more_decay
        d_g = torch.empty_like(d_decay)
        launch("chunk_local_cumsum_scalar_kernel", [d_decay], [d_g])
        if query_scale is not None:
            d_query = normalised_backward(query, query_scale, d_query)
            d_key = normalised_backward(key, key_scale, d_key)
        return d_query, d_key, d_value, d_g, d_beta, None


def normalised(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows with a Euclidean norm of 1, and their factors."""
    out, scale = torch.empty_like(tensor), tensor.new_empty(tensor.shape[:3], dtype=torch.float32)
    launch("l2norm_fwd_kernel", [tensor], [out, scale])
    return out, scale


def normalised_backward(out: torch.Tensor, scale: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of rows before `normalised`."""
    result = torch.empty_like(out)
    launch("l2norm_bwd_kernel", [out, scale, gradient], [result])
    return result


def _w_and_u(
    key: torch.Tensor, value: torch.Tensor, beta: torch.Tensor, decay: torch.Tensor, inverse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys and values of the WY representation, one for each value head."""
    w, u = value.new_empty(*value.shape[:3], key.shape[3]), torch.empty_like(value)
    flops = 2 * CHUNK * (key.shape[3] + value.shape[3]) // value.shape[3]
    launch("recompute_w_u_fwd_kernel", [value, key, beta, inverse, decay], [w, u], flops)
    return w, u


def states_of(
    key: torch.Tensor, w: torch.Tensor, u: torch.Tensor, decay: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The states at the beginning of each chunk, by token, and the new values."""
    state_elements_per_token = -(-u.shape[2] * u.shape[3] * key.shape[3] // CHUNK)
    states, new_value = u.new_empty(*u.shape[:2], state_elements_per_token), torch.empty_like(u)
    flops = 4 * key.shape[3]
    launch("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", [u, key, w, decay], [states, new_value], flops)
    return states, new_value


def _over_group(gradient: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The sum over the value heads that share a key head."""
    if gradient.shape[2] == key.shape[2]:
        return gradient
    summed: torch.Tensor = gradient.unflatten(2, (key.shape[2], -1)).sum(3)
    return summed
