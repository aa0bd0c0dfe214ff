"""A stand-in for cuDNN's grouped MLP, with which newer releases run a rank's experts: products and activation in one.

The kernel multiplies for all experts of a rank, adds the bias, activates, weights by the router's probabilities and
writes the result in MXFP8 while it has it on chip; backward likewise. Transformer Engine calls it if a newer Megatron
asks; Megatron-core 0.16 does not. Here the products are run as before, one after the other, and what their kernels do
besides is left out: nothing is launched for it, and the numbers are not those of a model. Its writes to memory hide
behind the products. What one more kernel sums for the bias' gradients is launched.
"""

from __future__ import annotations

import torch
from megatron.core.transformer.moe.experts import TEGroupedMLP
from transformer_engine.pytorch.cpp_extensions import general_gemm
from transformer_engine.pytorch.module import _split_quantization, grouped_linear

_ROWS = 32  # of a block of MXFP8: each expert has whole ones
_KEPT = 4  # results that a product wrote quantised and that have not been asked for yet
_written: list[int] = []  # where they lie


def _by_a_product(tensor: torch.Tensor) -> torch.Tensor:
    """Note that a product's kernel wrote this in the format that the next one reads."""
    _written.append(tensor.untyped_storage().data_ptr())
    del _written[:-_KEPT]
    return tensor


class Activated(torch.autograd.Function):
    """Activation, gate and weights by the product's own kernel, forward and backward: nothing is launched."""

    @staticmethod
    def forward(ctx, products: torch.Tensor, weights: torch.Tensor, width: int) -> torch.Tensor:
        ctx.shapes = products.shape, weights
        return _by_a_product(products.new_empty(*products.shape[:-1], width))

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        shape, weights = ctx.shapes
        return _by_a_product(gradient.new_empty(shape)), torch.empty_like(weights), None


class Biased(torch.autograd.Function):
    """The second biases, added by the product's own kernel; their gradients are a sum over the rows."""

    @staticmethod
    def forward(ctx, output: torch.Tensor, *biases: torch.Tensor) -> torch.Tensor:
        ctx.count = len(biases)
        return output.view_as(output)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        total = gradient.view(-1, gradient.shape[-1]).sum(0)
        return gradient, *([total] * ctx.count)


def run(self, hidden: torch.Tensor, tokens_per_expert: torch.Tensor, weights: torch.Tensor):
    """The experts of this rank; in the place of ``TEGroupedMLP.forward``."""
    token_counts = rows = tokens_per_expert.tolist()
    weights = weights.unsqueeze(-1)
    if any(count % _ROWS for count in token_counts):
        hidden, rows = self.quantization_padding(hidden, token_counts)
        weights, _ = self.quantization_padding(weights, token_counts)
    products, _ = self.linear_fc1(hidden, rows)
    activated = Activated.apply(products, weights, self.config.moe_ffn_hidden_size)
    output, biases = self.linear_fc2(activated, rows)
    output = Biased.apply(output, *biases) if biases else output
    return (output if rows is token_counts else self.quantization_unpadding(output, token_counts)), None


def _quantise(as_before):
    """Allocates where a product has written the quantised values already."""

    def quantise(tensor, splits, quantizers, *args, compute_dbias=False, **kwargs):
        if tensor.untyped_storage().data_ptr() not in _written:
            return as_before(tensor, splits, quantizers, *args, compute_dbias=compute_dbias, **kwargs)
        parts = [
            quantizer.make_empty((rows, tensor.shape[-1]), dtype=tensor.dtype, device=tensor.device)
            for rows, quantizer in zip(splits, quantizers)
        ]
        sums = [tensor.new_empty(tensor.shape[-1]) for _ in splits] if compute_dbias else None
        return parts, sums

    return quantise


def _multiply(left, right, out, quantization_params, out_dtype, layout="TN", m_splits=None, bias=None, **options):
    """The products of a group one after the other, as blocks of one kernel would come up."""
    single, used = options.pop("single_output", False), options.pop("use_bias", False)
    options.pop("D_dtype", None)
    results = list(out[0].split(m_splits)) if single else out
    sums = []
    for index, result in enumerate(results):
        result_bias = bias[index] if used else None
        _, dbias, *_ = general_gemm(
            left[index], right[index], out_dtype=out_dtype, layout=layout, out=result, bias=result_bias, **options
        )
        sums.append(dbias)
    return out, sums, None


def install() -> None:
    """Let all experts run so from here on."""
    TEGroupedMLP.forward = run
    _split_quantization._split_quantize = _quantise(_split_quantization._split_quantize)
    grouped_linear.general_grouped_gemm = _multiply
