"""What Megatron-core's layers are made of: Transformer Engine's modules, or PyTorch's where that is not installed."""

from __future__ import annotations

import sys
import types

import torch
import torch.nn.functional as F


def install_weight_gradient_fusion() -> None:
    """Apex's one function: the product of a weight's gradient is added to its fp32 buffer by cuBLAS itself.

    Megatron imports it by name; cuBLAS does the same through PyTorch, with beta = 1.
    """

    @torch.no_grad()  # as an extension: Megatron calls it outside of backward, too, where it defers the embedding's
    def accumulate(inputs: torch.Tensor, grad: torch.Tensor, main_grad: torch.Tensor) -> None:
        rows, columns = grad.reshape(-1, grad.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
        if main_grad.dtype == grad.dtype:
            torch.addmm(main_grad, rows.t(), columns, out=main_grad)
        else:
            torch.addmm(main_grad, rows.t(), columns, main_grad.dtype, out=main_grad)

    _offer("fused_weight_gradient_mlp_cuda", wgrad_gemm_accum_fp32=accumulate, wgrad_gemm_accum_fp16=accumulate)


def install_masked_softmax_fusion() -> None:
    """Megatron's extensions for softmax: scaling, causal mask and softmax are one kernel, and so is their backward.

    Inductor makes those kernels here.
    """

    @torch.compile(dynamic=False)
    def forward(scores: torch.Tensor, scale: float) -> torch.Tensor:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return torch.softmax((scores * scale).masked_fill(above, -10000.0), -1)

    @torch.compile(dynamic=False)
    def backward(gradients: torch.Tensor, results: torch.Tensor, scale: float) -> torch.Tensor:
        product = gradients.float() * results
        return gradients.copy_((product - results * product.sum(-1, keepdim=True)) * scale)

    _offer(
        "scaled_upper_triang_masked_softmax_cuda",
        forward=lambda scores, scale: forward(scores, float(scale)),
        backward=lambda gradients, results, scale: backward(gradients, results, float(scale)),
    )
    _offer("scaled_masked_softmax_cuda", get_batch_per_block=lambda *sizes: 1)


def install_flash_attention() -> None:
    """The kernels of the package flash-attn, which PyTorch has built in, where Transformer Engine looks for them.

    Transformer Engine chooses between them and cuDNN's by the GPU, as in a container that has both.
    """
    from packaging.version import Version
    from transformer_engine.pytorch.attention.dot_product_attention import backends

    utils = backends.fa_utils
    if utils.is_installed:
        return
    utils.version = Version("2.7.4")
    utils.set_flash_attention_version()
    backends.flash_attn_func = _flash
    backends._flash_attn_fwd, backends._flash_attn_bwd = _flash_forward, _flash_backward


def _flash(query, key, value, dropout=0.0, *, softmax_scale, causal, **_):
    return _flash_forward(query, key, value, dropout, softmax_scale, causal)[0]


def _flash_forward(query, key, value, dropout_p=0.0, softmax_scale=None, causal=False, **_):
    lengths = query.shape[1], key.shape[1]
    results = torch.ops.aten._flash_attention_forward(
        query, key, value, None, None, *lengths, dropout_p, causal, False, scale=softmax_scale
    )
    out, logsumexp, rng_state, unused, _ = results
    return out, logsumexp, unused, rng_state


def _flash_backward(
    gradient, query, key, value, out, logsumexp, dq, dk, dv, dropout_p, softmax_scale, causal, rng_state=None, **_
):
    """Into dq, dk and dv: PyTorch's own has outputs of its own, which are copied."""
    lengths = query.shape[1], key.shape[1]
    settings = (None, None, *lengths, dropout_p, causal, rng_state, torch.empty(0, device=query.device))
    results = torch.ops.aten._flash_attention_backward(
        gradient, query, key, value, out, logsumexp, *settings, scale=softmax_scale
    )
    for into, result in zip((dq, dk, dv), results):
        into.copy_(result)


def install_router_product() -> None:
    """Transformer Engine's product for routers, bf16 in and fp32 out, under the signature that Megatron-core calls.

    Megatron-core 0.16.1 asks for a workspace that Transformer Engine has ceased to hand out since, and multiplies in
    fp32 where it does not find it.
    """
    from megatron.core.transformer.moe import moe_utils
    from transformer_engine.pytorch.cpp_extensions import general_gemm

    def multiply(a, b, out_dtype=None, layout="TN", out=None, bias=None, grad=False):
        return general_gemm(a, b, out_dtype=out_dtype, layout=layout, out=out, bias=bias, grad=grad)

    if moe_utils.te_general_gemm is None:
        moe_utils.te_general_gemm = multiply


def _offer(name: str, **functions) -> None:
    """A module of this name for whoever imports it, unless there is one."""
    module = types.ModuleType(name)
    vars(module).update(functions)
    sys.modules.setdefault(name, module)


def leave_out_checks_of_shards() -> None:
    """Megatron's FSDP compares the shards of all ranks when it is built, and a rank alone has only its own."""
    from megatron.core.distributed.fsdp.src.megatron_fsdp import param_and_grad_buffer

    param_and_grad_buffer.validate_uneven_dtensor = lambda tensor: None


def block_spec(config, engine: str, attention: str, vp_stage: int | None):
    """The layers of this rank's stage, or of one of its virtual stages."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=engine == "te", vp_stage=vp_stage)
    if engine == "te":
        return spec
    spec.layer_norm = Norm
    for layer in spec.layer_specs:
        parts = layer.submodules
        parts.input_layernorm = parts.pre_mlp_layernorm = Norm
        if attention != "unfused":
            parts.self_attention.submodules.core_attention = FusedAttention
    return spec


def prediction_spec(config, spec, engine: str, vp_stage: int | None):
    """What predicts a second token (DeepSeek's), where the model has it and this stage holds it."""
    if not config.mtp_num_layers:
        return None
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_layer_specs, get_gpt_mtp_block_spec

    transformer_engine = engine == "te"
    layers = spec if spec.layer_specs else get_gpt_decoder_layer_specs(config, transformer_engine)[-1]
    return get_gpt_mtp_block_spec(config, layers, transformer_engine, vp_stage=vp_stage)


class FusedAttention(torch.nn.Module):
    """PyTorch's fused attention with the interface of Megatron's core attention: [sequence, batch, heads, dim]."""

    def __init__(self, config, *args, **kwargs) -> None:
        super().__init__()
        self.config = config

    def forward(self, query, key, value, attention_mask=None, **kwargs) -> torch.Tensor:
        q, k, v = (t.permute(1, 2, 0, 3) for t in (query, key, value))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return out.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], -1)


class Norm(torch.nn.Module):
    """A norm whose gradients Megatron sums over the sequence-parallel ranks; its own local one refuses to be split."""

    def __init__(self, config, hidden_size: int, eps: float = 1e-5, **kwargs) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(hidden_size))
        self.bias = None if config.normalization == "RMSNorm" else torch.nn.Parameter(torch.zeros(hidden_size))
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
