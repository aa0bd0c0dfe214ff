"""NeMo AutoModel's mixtures of experts on random tokens: its models, its sharding, a step as its benchmark times it.

Needs nemo-automodel; hybrids also mamba-ssm and causal-conv1d. Settings are of the project's benchmarks: layers of
Transformer Engine, experts by grouped products, tokens exchanged by DeepEP, a gate that deals them out evenly.
"""

from __future__ import annotations

import argparse
import json

import torch
import torch.distributed as dist
import transformers
from mamba_extensions import install_extensions
from nemo_automodel._transformers.registry import ModelRegistry
from nemo_automodel.components.distributed.config import FSDP2Config, MoEParallelizerConfig
from nemo_automodel.components.distributed.mesh import MeshContext, ParallelismSizes
from nemo_automodel.components.distributed.model_parallelizer import parallelize_model
from nemo_automodel.components.loss.masked_ce import MaskedCrossEntropy
from nemo_automodel.components.models.common import BackendConfig
from nemo_automodel.components.training.utils import (
    prepare_after_first_microbatch,
    prepare_for_final_backward,
    prepare_for_grad_accumulation,
)


def parse() -> argparse.Namespace:
    """The model and the way to train it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="class of transformers' configuration, e.g. Qwen3MoeConfig")
    parser.add_argument("--set", type=json.loads, default={}, help="fields of it, as JSON")
    parser.add_argument("--architecture", required=True, help="the model's class, e.g. Qwen3MoeForCausalLM")
    for name in ("sequence", "batch", "expert-parallel"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--accumulate", type=_counts, required=True, help="micro-batches of each step: 4, or 1,2,6")
    parser.add_argument("--attention", default="te", help="as BackendConfig calls it")
    parser.add_argument("--checkpoint", action="store_true", help="layers are computed again in the backward pass")
    parser.add_argument("--reshard", action="store_true", help="weights are gathered again for it")
    parser.add_argument("--gathers-once", action="store_true", help="... only once for all micro-batches of a step")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    return [int(count) for count in text.split(",")]


def build(o: argparse.Namespace, device: torch.device) -> torch.nn.Module:
    """The model, sharded and with weights."""
    sizes = ParallelismSizes(ep_size=o.expert_parallel)
    experts = MoEParallelizerConfig(reshard_after_forward=o.reshard)
    mesh = MeshContext.build(FSDP2Config(), sizes, moe_parallel_config=experts, activation_checkpointing=o.checkpoint)
    config = getattr(transformers, o.config)(torch_dtype="bfloat16", **o.set)
    backend = BackendConfig(
        attn=o.attention,
        linear="te",
        rms_norm="te",
        rope_fusion=True,
        experts="torch_mm",
        dispatcher="deepep",
        dispatcher_num_sms=20,
        fake_balanced_gate=True,
        enable_fsdp_optimizations=o.gathers_once,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = ModelRegistry.model_arch_name_to_cls[o.architecture](config, backend=backend)
    torch.set_default_dtype(torch.float32)
    parallelize_model(model, mesh)
    model.to_empty(device=device)
    with torch.no_grad():
        model.initialize_weights(buffer_device=device)
    return model.train()


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, micro_batches: int, o, device: torch.device) -> None:
    """Forward and backward of all micro-batches, and the optimizer."""
    loss_fn = MaskedCrossEntropy(fp32_upcast=False)
    losses = []
    optimizer.zero_grad()
    prepare_for_grad_accumulation([model])
    for place in range(micro_batches):
        if place == micro_batches - 1:
            prepare_for_final_backward([model])
        tokens = torch.randint(model.config.vocab_size, (o.batch, o.sequence + 1))
        labels = tokens[:, 1:].contiguous().to(device, non_blocking=True)
        positions = torch.arange(o.sequence).expand(o.batch, -1).to(device, non_blocking=True)
        torch.cuda.synchronize()  # its timers do, before and after each
        logits = model(tokens[:, :-1].contiguous().to(device, non_blocking=True), position_ids=positions)
        logits = getattr(logits, "logits", logits)
        loss = loss_fn(logits, labels)
        losses.append(loss.detach())
        del logits
        (loss * dist.get_world_size() / micro_batches).backward()
        torch.cuda.synchronize()
        if place == 0:
            prepare_after_first_microbatch()
    optimizer.step()
    torch.stack(losses).sum().item()


def main() -> None:
    """A few steps."""
    o = parse()
    install_extensions()
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(dist.get_rank() % torch.cuda.device_count()))
    torch.cuda.set_device(device)
    torch.manual_seed(1234)
    model = build(o, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for place in range(o.steps):
        step(model, optimizer, o.accumulate[min(place, len(o.accumulate) - 1)], o, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
