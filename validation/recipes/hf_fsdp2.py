"""Train a model of Hugging Face's as `presim compose` assumes it: the capture to compare with.

    torchrun --nproc-per-node 8 validation/recipes/hf_fsdp2.py config.json --sequence 4096

FSDP2 and HSDP: each block of the model is one unit, parameters in fp32, compute in bf16, gradients reduced in fp32.
DDP: everything in bf16. Tensor parallelism by DTensor, as the model itself plans it. Fused AdamW.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, AutoModelForCausalLM

STYLES = {"colwise": ColwiseParallel, "rowwise": RowwiseParallel}


def blocks_of(model) -> torch.nn.ModuleList:
    """The outermost list of modules."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module) > 1]
    return next(one for one in lists if len(one) == model.config.num_hidden_layers)


def split(model, mesh) -> None:
    """Linear layers of blocks between tensor-parallel ranks, by the model's own plan."""
    named = {name.replace("*", "0"): style for name, style in model.tp_plan.items() if style in STYLES}
    for index in range(model.config.num_hidden_layers):
        plan = {name.replace(".0.", f".{index}.", 1): STYLES[style]() for name, style in named.items()}
        parallelize_module(model, mesh, plan)


def shard(model, mesh, reshard: bool) -> None:
    """FSDP2 by block; over a mesh of two dimensions, HSDP."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def clip(model) -> None:
    """Clip to a global norm; a function, so that nothing holds gradients until the next step."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    total = torch.nn.utils.get_total_norm(gradients)
    total = total.full_tensor() if isinstance(total, DTensor) else total
    local = [one.to_local() if isinstance(one, DTensor) else one for one in gradients]
    torch._foreach_mul_(local, torch.clamp(1.0 / (total + 1e-6), max=1.0))


def parse() -> argparse.Namespace:
    """The model's sizes and the plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--style", choices=("fsdp2", "ddp"), default="fsdp2")
    parser.add_argument("--shard", type=int, default=0, help="ranks that share one copy of the parameters; 0: all")
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="gathered parameters until the backward pass")
    return parser.parse_args()


def prepare(options: argparse.Namespace, config):
    """The model on this rank, and how it is called."""
    world, tensor = dist.get_world_size(), options.tensor
    is_ddp = options.style == "ddp"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if is_ddp else torch.float32)
    if tensor > 1:
        split(model, init_device_mesh("cuda", (world // tensor, tensor), mesh_dim_names=("data", "tensor"))["tensor"])
    blocks = blocks_of(model)
    for index in range(len(blocks) if options.checkpoint else 0):
        blocks[index] = checkpoint_wrapper(blocks[index])
    if not is_ddp:
        data = world // tensor
        inner = options.shard or data
        shape = (data // inner, inner, tensor)
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicas", "shard", "tensor"))
        shard(model, mesh["replicas", "shard"] if options.shard else mesh["shard"], not options.keep)
    model.to_empty(device="cuda")
    model.tie_weights()  # which to_empty parts where FSDP2 has not sharded them
    model.train()
    return model, DistributedDataParallel(model) if is_ddp else model


def main() -> None:
    """Three steps on random tokens."""
    options = parse()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    config = AutoConfig.from_pretrained(options.config)
    config.use_cache = False
    model, called = prepare(options, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for _ in range(3):
        for micro in range(options.accumulate):
            if options.style == "ddp":
                called.require_backward_grad_sync = micro == options.accumulate - 1
            tokens = torch.randint(config.vocab_size, (options.batch, options.sequence), device="cuda")
            called(input_ids=tokens, labels=tokens).loss.backward()
        if options.tensor == 1:  # get_total_norm takes tensors of one mesh only
            clip(model)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
