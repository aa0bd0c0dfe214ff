"""An MPT as llm-foundry trains it: Composer's FSDP1 wrapping, flash attention, GELU MLP, tied embeddings.

``--mixed-precision default`` keeps parameters in fp32, computes and reduces in bf16 after Composer's DEFAULT;
``pure`` casts everything, as PURE does. The whole batch of a rank is cut into micro-batches, and gradients of all but
the last are accumulated sharded, because every micro-batch is reduced (Composer does not use ``no_sync`` with FSDP).
``--fp8`` takes Transformer Engine's linear layers in the blocks (``fc_type: te``) with the scaling of Composer's
``amp_fp8``: delayed, E4M3 forward and E5M2 backward, a history of 16.
"""

import argparse
import contextlib
import os
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.attention import SDPBackend, sdpa_kernel

ATTENTION = {
    "flash1": SDPBackend.EFFICIENT_ATTENTION,  # what PyTorch has that is nearest to FlashAttention 1, also in speed
    "flash2": SDPBackend.FLASH_ATTENTION,
}


Linear = Callable[..., nn.Module]


def linear_of(o: argparse.Namespace) -> Linear:
    """What the blocks' products are made by."""
    if not o.fp8:
        return nn.Linear
    import transformer_engine.pytorch as te

    return lambda *sizes, bias: te.Linear(*sizes, bias=bias, device="meta", params_dtype=torch.float32)


def fp8(o: argparse.Namespace) -> contextlib.AbstractContextManager:
    """Composer's context of a forward pass."""
    if not o.fp8:
        return contextlib.nullcontext()
    import transformer_engine.pytorch as te
    from transformer_engine.common.recipe import DelayedScaling, Format

    scaling = DelayedScaling(fp8_format=Format.HYBRID, amax_history_len=16, amax_compute_algo="max")
    return te.autocast(enabled=True, recipe=scaling)


class Attention(nn.Module):
    """One fused projection, flash attention, one projection out."""

    def __init__(self, hidden: int, heads: int, backend: SDPBackend, linear: Linear) -> None:
        super().__init__()
        self.heads = heads
        self.backend = backend
        self.Wqkv = linear(hidden, 3 * hidden, bias=False)
        self.out_proj = linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.Wqkv(x).chunk(3, dim=2))
        with sdpa_kernel(self.backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(batch, length, hidden))


class LowPrecisionNorm(nn.LayerNorm):
    """MPT's low_precision_layernorm: in bf16 under autocast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", enabled=False):
            return F.layer_norm(x.bfloat16(), self.normalized_shape, self.weight.bfloat16(), None, self.eps)


class Block(nn.Module):
    """Attention and MLP, each with its norm and residual."""

    def __init__(self, hidden: int, heads: int, ffn: int, backend: SDPBackend, linear: Linear) -> None:
        super().__init__()
        self.norm_1 = LowPrecisionNorm(hidden, bias=False)
        self.attn = Attention(hidden, heads, backend, linear)
        self.norm_2 = LowPrecisionNorm(hidden, bias=False)
        self.up_proj = linear(hidden, ffn, bias=False)
        self.down_proj = linear(ffn, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm_1(x))
        return x + self.down_proj(F.gelu(self.up_proj(self.norm_2(x))))


class MPT(nn.Module):
    """The whole model; logits from the embedding's own weight."""

    def __init__(self, o: argparse.Namespace) -> None:
        super().__init__()
        self.wte = nn.Embedding(o.vocab, o.hidden)
        self.wpe = nn.Embedding(o.sequence, o.hidden)
        shape = (o.hidden, o.heads, o.ffn, ATTENTION[o.attention], linear_of(o))
        self.blocks = nn.ModuleList(Block(*shape) for _ in range(o.layers))
        self.norm_f = LowPrecisionNorm(o.hidden, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm_f(x), self.wte.weight)


class InPlaceCrossEntropy(torch.autograd.Function):
    """Memory of llm-foundry's default loss (flash-attn's): the gradient overwrites the logits, in bf16."""

    @staticmethod
    def forward(ctx, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        sums = torch.cat([torch.logsumexp(part, 1) for part in logits.split(2048)])
        ctx.save_for_backward(logits, targets, sums)
        return (sums - logits.gather(1, targets[:, None])[:, 0]).float().mean()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, targets, sums = ctx.saved_tensors
        logits.sub_(sums[:, None]).exp_()
        logits.scatter_add_(1, targets[:, None], logits.new_full((len(targets), 1), -1.0))
        return logits.mul_(gradient / len(targets)), None


def shard(model: MPT, o: argparse.Namespace) -> FullyShardedDataParallel:
    """Composer wraps every block and the model."""
    low = torch.bfloat16
    precision = {
        "default": MixedPrecision(param_dtype=low, reduce_dtype=torch.float32, buffer_dtype=low),
        "pure": MixedPrecision(param_dtype=low, reduce_dtype=low, buffer_dtype=low),
    }[o.mixed_precision]
    strategy = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}[o.sharding]
    sharded = FullyShardedDataParallel(
        model,
        sharding_strategy=strategy,
        mixed_precision=precision,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        param_init_fn=lambda module: module.to_empty(device="cuda", recurse=False),
        device_id=torch.cuda.current_device(),
        limit_all_gathers=True,
        use_orig_params=False,
    )
    if o.checkpoint:
        apply_activation_checkpointing(
            sharded,
            checkpoint_wrapper_fn=partial(
                checkpoint_wrapper,
                checkpoint_impl=CheckpointImpl.NO_REENTRANT,
                context_fn=lambda: (contextlib.nullcontext(), fp8(o)),  # the second forward pass is in FP8 too
            ),
            check_fn=lambda module: isinstance(module, Block),
        )
    return sharded


def parse() -> argparse.Namespace:
    """Shapes and the way to train them."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "ffn", "heads", "vocab", "sequence", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--attention", choices=tuple(ATTENTION), default="flash1", help="published runs: before 2024")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--fp8", action="store_true", help="needs Transformer Engine")
    parser.add_argument("--sharding", choices=("full", "grad"), default="full")
    parser.add_argument("--mixed-precision", choices=("default", "pure"), default="default")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """A few steps on random tokens."""
    o = parse()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    with torch.device("meta"):
        model = MPT(o)
    model = shard(model, o)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(o.steps):
        optimizer.zero_grad()
        for _ in range(o.accumulate):
            tokens = torch.randint(o.vocab, (o.batch, o.sequence), device="cuda")
            with torch.autocast("cuda", torch.bfloat16), fp8(o):
                logits = model(tokens)
                loss = InPlaceCrossEntropy.apply(logits.flatten(0, 1), tokens.flatten())
            (loss / o.accumulate).backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
