"""Train a Llama 3.1 with FSDP2: the main example.

Hugging Face's LlamaForCausalLM with the shapes of the published models, fully sharded data parallelism (FSDP2), bf16
with fp32 master weights, activation checkpointing of every layer, fused AdamW. With ``--tensor-parallel`` the
attention and MLP of each layer are split over the GPUs of a node by DTensor. It is an ordinary script: ``torchrun
--nproc-per-node 8 examples/llama_fsdp2.py`` runs it on GPUs.

presim run --gpu h100-sxm --nodes 16 --gpus-per-node 8 examples/llama_fsdp2.py
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32),
    "70b": dict(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64),
}


def build_model(name: str) -> LlamaForCausalLM:
    """The model on the meta device: shapes without storage."""
    config = LlamaConfig(
        vocab_size=128256,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rope_theta=500000.0,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
        **SHAPES[name],
    )
    with torch.device("meta"):
        return LlamaForCausalLM(config)


def split_layers(model: LlamaForCausalLM, mesh) -> None:
    """Megatron-style tensor parallelism: columns, then rows."""
    plan = {
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(),
    }
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)


def shard(model: LlamaForCausalLM, mesh, checkpoint: bool) -> None:
    """FSDP2 by layer; parameters in fp32, compute in bf16, gradients reduced in fp32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers = model.model.layers
    for index, layer in enumerate(layers):
        layers[index] = checkpoint_wrapper(layer) if checkpoint else layer
        fully_shard(layers[index], mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def clip_gradients(model: LlamaForCausalLM, limit: float) -> None:
    """Clip to a global norm; parameters that are split over two meshes and over one are summed apart."""
    by_mesh: dict = {}
    for parameter in model.parameters():
        by_mesh.setdefault(parameter.grad.device_mesh, []).append(parameter.grad)
    norms = [torch.nn.utils.get_total_norm(gradients).full_tensor() for gradients in by_mesh.values()]
    total = torch.linalg.vector_norm(torch.stack(norms))
    scale = torch.clamp(limit / (total + 1e-6), max=1.0)
    for gradients in by_mesh.values():
        torch._foreach_mul_([gradient.to_local() for gradient in gradients], scale)


def main() -> None:
    """Three steps on random tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="8b")
    parser.add_argument("--sequence", type=int, default=8192, help="tokens per sample")
    parser.add_argument("--batch", type=int, default=1, help="samples per data-parallel rank")
    parser.add_argument("--tensor-parallel", type=int, default=1, metavar="N")
    parser.add_argument("--no-checkpoint", dest="checkpoint", action="store_false")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--log", action="store_true", help="print the time of each step, as trainers do")
    options = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    split = options.tensor_parallel
    mesh = init_device_mesh("cuda", (dist.get_world_size() // split, split), mesh_dim_names=("dp", "tp"))
    model = build_model(options.model)
    if split > 1:
        split_layers(model, mesh["tp"])
    shard(model, mesh["dp"], options.checkpoint)
    model.to_empty(device="cuda")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    vocabulary = model.config.vocab_size
    for step in range(options.steps):
        started = time.perf_counter()
        tokens = torch.randint(vocabulary, (options.batch, options.sequence), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        clip_gradients(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if options.log and dist.get_rank() == 0:
            torch.cuda.synchronize()
            seconds = time.perf_counter() - started
            rate = tokens.numel() * dist.get_world_size() // split / seconds
            memory = torch.cuda.max_memory_allocated() / 2**30
            print(f"step {step}: {seconds:.4f} s, {rate:,.0f} tokens/s, {memory:.2f} GiB", flush=True)
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
