"""A Llama as torchtitan trains it: plain modules, tensor parallelism by DTensor, FSDP2, AdamW.

The order is torchtitan's: split over the tensor-parallel mesh, wrap in activation checkpoints, compile block by block,
shard. Parameters and gradients are reduced in fp32, computed with in bf16; the loss is computed in fp32.
"""

import argparse
import contextlib
import dataclasses
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._composable.replicate import replicate  # noqa: F401  (checks that this PyTorch has FSDP2)
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts


class Attention(nn.Module):
    """Grouped-query attention with rotary embeddings in complex numbers; heads may be split over a mesh."""

    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head_dim = dim // heads
        self.groups = heads // kv_heads
        self.wq = nn.Linear(dim, heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(heads * self.head_dim, dim, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (w(x).view(batch, length, -1, self.head_dim) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, angles), rotate(k, angles)
        k, v = repeat(k, self.groups), repeat(v, self.groups)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).contiguous().view(batch, length, -1))


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Pairs of channels as complex numbers, turned by position."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * angles[: x.shape[1]].view(1, x.shape[1], 1, -1)
    return torch.view_as_real(turned).flatten(3).type_as(x)


def repeat(x: torch.Tensor, times: int) -> torch.Tensor:
    """Each key-value head for each of its query heads."""
    if times == 1:
        return x
    batch, length, heads, dim = x.shape
    return x[:, :, :, None, :].expand(batch, length, heads, times, dim).reshape(batch, length, heads * times, dim)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Attention and feed-forward, each with its norm and residual."""

    def __init__(self, o: argparse.Namespace) -> None:
        super().__init__()
        self.attention = Attention(o.hidden, o.heads, o.kv_heads)
        self.feed_forward = FeedForward(o.hidden, o.ffn)
        self.attention_norm = nn.RMSNorm(o.hidden, eps=1e-5)
        self.ffn_norm = nn.RMSNorm(o.hidden, eps=1e-5)

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        h = x + self.attention(self.attention_norm(x), angles)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    """The whole model."""

    def __init__(self, o: argparse.Namespace) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(o.vocab, o.hidden)
        self.register_buffer("angles", angles(o.hidden // o.heads, o.sequence), persistent=False)
        self.layers = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.norm = nn.RMSNorm(o.hidden, eps=1e-5)
        self.output = nn.Linear(o.hidden, o.vocab, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, self.angles)
        return self.output(self.norm(h))


def angles(dim: int, length: int) -> torch.Tensor:
    """Rotation of each position and pair of channels."""
    speeds = 1.0 / (500000.0 ** (torch.arange(0, dim, 2).float() / dim))
    turns = torch.outer(torch.arange(length), speeds)
    return torch.polar(torch.ones_like(turns), turns)


def split(model: Llama, mesh) -> None:
    """Tensor parallelism with sequence parallelism between the products, and a loss over split logits."""
    parallelize_module(
        model,
        mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
        },
    )
    for layer in model.layers:
        plan = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
            **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel(),
        }
        parallelize_module(layer, mesh, plan)


def pipeline_products(mesh) -> None:
    """Collectives of tensor parallelism in pieces beside the products that need them or make them (async TP)."""
    import torch._inductor.config
    from torch.distributed._symmetric_memory import enable_symm_mem_for_group

    torch._inductor.config._micro_pipeline_tp = True
    enable_symm_mem_for_group(mesh.get_group().group_name)


def convert(model: Llama, recipe: str) -> None:
    """Products of the blocks in FP8, as torchtitan asks torchao for it; the output layer stays in bf16."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig.from_recipe_name(recipe)
    if recipe == "tensorwise":
        config = dataclasses.replace(config, enable_fsdp_float8_all_gather=True)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda module, name: name != "output")


_SAVED = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


def selective_contexts():
    """Keep attention, every second product and what was reduced; recompute the rest."""
    products: dict[bool, int] = {}

    def policy(context, operator, *args, **kwargs) -> CheckpointPolicy:
        if operator == torch.ops.aten.mm.default:
            products[context.is_recompute] = products.get(context.is_recompute, 0) + 1
        kept = operator in _SAVED and not (
            operator == torch.ops.aten.mm.default and products[context.is_recompute] % 2 == 0
        )
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpoint(model: Llama, mode: str) -> None:
    """``full``: every block; ``selective``: by operator; ``none``."""
    for index, layer in enumerate(model.layers):
        if mode == "full":
            model.layers[index] = checkpoint_wrapper(layer, preserve_rng_state=False)
        elif mode == "selective":
            model.layers[index] = checkpoint_wrapper(layer, context_fn=selective_contexts, preserve_rng_state=False)


def shard(model: Llama, mesh) -> None:
    """FSDP2 by block, the root last."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for index, layer in enumerate(model.layers):
        last = index == len(model.layers) - 1
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=not last)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def precompute_scales(model: Llama) -> None:
    """One reduction for the scales of all weights, instead of one a weight."""
    from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp as precompute

    precompute(model)


def clip(model: Llama) -> None:
    """To a norm of one over all parameters."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    total = torch.nn.utils.get_total_norm(gradients, foreach=True)
    total = total.full_tensor() if isinstance(total, DTensor) else total
    torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, total, foreach=True)


def parse() -> argparse.Namespace:
    """The shapes and the way to train them."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "ffn", "heads", "kv-heads", "vocab", "sequence", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--checkpoint", choices=("none", "selective", "full"), default="none")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--async-tensor-parallel", action="store_true", help="needs --compile")
    parser.add_argument("--float8", choices=("tensorwise", "rowwise"), help="needs torchao")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """A few steps on random tokens."""
    o = parse()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    tp = o.tensor_parallel
    mesh = init_device_mesh("cuda", (dist.get_world_size() // tp, tp), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        model = Llama(o)
    if o.float8:
        convert(model, o.float8)
    if tp > 1:
        split(model, mesh["tp"])
    if o.async_tensor_parallel:
        pipeline_products(mesh["tp"])
    checkpoint(model, o.checkpoint)
    if o.compile:
        for layer in model.layers:
            layer.compile(fullgraph=True)
    shard(model, mesh["dp"])
    model.to_empty(device="cuda")
    with torch.no_grad():
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for _ in range(o.steps):
        optimizer.zero_grad()
        for _ in range(o.accumulate):
            tokens = torch.randint(o.vocab, (o.batch, o.sequence), device="cuda")
            with loss_parallel() if tp > 1 else contextlib.nullcontext():
                logits = model(tokens)
                loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten(0, 1))
                del logits
                loss.backward()
        clip(model)
        optimizer.step()
        if o.float8 == "tensorwise":
            precompute_scales(model)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
