"""Train a model of Hugging Face's with FSDP2 as `presim compose` assumes it: the capture to compare with.

    torchrun --nproc-per-node 8 validation/recipes/hf_fsdp2.py config.json --sequence 4096

Each block of the model is one unit, parameters in fp32, compute in bf16, gradients reduced in fp32, fused AdamW.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM


def shard(model, mesh, checkpoint: bool) -> None:
    """FSDP2 by block: the outermost lists of modules are blocks."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module) > 1]
    blocks = next(one for one in lists if len(one) == model.config.num_hidden_layers)
    for index, block in enumerate(blocks):
        blocks[index] = checkpoint_wrapper(block) if checkpoint else block
        fully_shard(blocks[index], mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def clip(model) -> None:
    """Clip to a global norm; a function, so that nothing holds gradients until the next step."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    total = torch.nn.utils.get_total_norm(gradients).full_tensor()
    torch._foreach_mul_([one.to_local() for one in gradients], torch.clamp(1.0 / (total + 1e-6), max=1.0))


def main() -> None:
    """Three steps on random tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--sequence", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--checkpoint", action="store_true")
    options = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    config = AutoConfig.from_pretrained(options.config)
    config.use_cache = False
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    shard(model, init_device_mesh("cuda", (dist.get_world_size(),)), options.checkpoint)
    model.to_empty(device="cuda")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    for _ in range(3):
        tokens = torch.randint(config.vocab_size, (options.batch, options.sequence), device="cuda")
        model(input_ids=tokens, labels=tokens).loss.backward()
        clip(model)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
