"""NeMo AutoModel's mixtures of experts on random tokens: its models, its sharding, a step as its benchmark times it.

Needs nemo-automodel; hybrids also mamba-ssm and causal-conv1d. Settings are of the project's benchmarks: layers of
Transformer Engine, experts by grouped products, tokens exchanged by DeepEP, a gate that deals them out evenly.
"""

from __future__ import annotations

import argparse
import functools
import json

import torch
import torch.distributed as dist
import transformers
from mamba_extensions import install_extensions
from nemo_automodel._transformers.infrastructure import parallelize_for_pp
from nemo_automodel._transformers.registry import ModelRegistry
from nemo_automodel.components.distributed.config import FSDP2Config, MoEParallelizerConfig
from nemo_automodel.components.distributed.mesh import MeshContext, ParallelismSizes
from nemo_automodel.components.distributed.model_parallelizer import parallelize_model
from nemo_automodel.components.distributed.pipelining import AutoPipeline
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
    parser.add_argument("--accumulate", type=_counts, required=True, help="batches of each step: 4, or 1,2,6")
    parser.add_argument("--attention", default="te", help="as BackendConfig calls it")
    parser.add_argument("--checkpoint", action="store_true", help="layers are computed again in the backward pass")
    parser.add_argument("--reshard", action="store_true", help="weights are gathered again for it")
    parser.add_argument("--gathers-once", action="store_true", help="... only once for all batches of a step")
    parser.add_argument("--pipeline-parallel", type=int, default=1, help="ranks of an interleaved 1F1B")
    parser.add_argument("--microbatch", type=int, help="sequences in it at a time")
    parser.add_argument("--layers-per-stage", type=int, help="at most; ranks have as many stages each")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    return [int(count) for count in text.split(",")]


def mesh_of(o: argparse.Namespace) -> MeshContext:
    """How ranks share the work, and by what rules."""
    whole = o.pipeline_parallel == 1
    return MeshContext.build(
        FSDP2Config(),
        ParallelismSizes(ep_size=o.expert_parallel, pp_size=o.pipeline_parallel),
        moe_parallel_config=MoEParallelizerConfig(reshard_after_forward=o.reshard, wrap_outer_model=whole),
        activation_checkpointing=o.checkpoint,
    )


def model_of(o: argparse.Namespace) -> torch.nn.Module:
    """The model, without memory."""
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
    return model


def pipeline_of(o: argparse.Namespace, model: torch.nn.Module, mesh: MeshContext, device: torch.device) -> AutoPipeline:
    """The model in stages, of which this rank has some."""
    pipeline = AutoPipeline(
        world_mesh=mesh.device_mesh,
        moe_mesh=mesh.moe_mesh,
        **mesh.pipeline_axis_kwargs(),
        pp_schedule="interleaved1f1b",
        pp_microbatch_size=o.microbatch,
        pp_batch_size=o.batch,
        layers_per_stage=o.layers_per_stage,
        round_virtual_stages_to_pp_multiple="up",
        patch_inner_model=False,
        patch_causal_lm_model=False,
        device=device,
        dtype=torch.bfloat16,
        pp_seq_len=o.sequence,
    )
    share = functools.partial(parallelize_for_pp, mesh_context=mesh)
    return pipeline.build(model, loss_fn=MaskedCrossEntropy(fp32_upcast=False), parallelize_fn=share)


class Trainer:
    """The model, shared out and with weights, and its optimizer."""

    def __init__(self, o: argparse.Namespace, device: torch.device) -> None:
        self.o, self.device, mesh, model = o, device, mesh_of(o), model_of(o)
        self.words = model.config.vocab_size
        self.pipeline = pipeline_of(o, model, mesh, device) if o.pipeline_parallel > 1 else None
        self.parts = self.pipeline.parts if self.pipeline else [parallelize_model(model, mesh)]
        for part in self.parts:
            part.to_empty(device=device)
            with torch.no_grad():
                part.initialize_weights(buffer_device=device)
            part.train()
        self.optimizer = torch.optim.Adam([each for part in self.parts for each in part.parameters()], lr=1e-4)
        self.loss_fn = MaskedCrossEntropy(fp32_upcast=False)

    def step(self, batches: int) -> None:
        """Forward and backward of all batches, and the optimizer."""
        losses: list[torch.Tensor] = []
        self.optimizer.zero_grad()
        prepare_for_grad_accumulation(self.parts, pp_enabled=self.pipeline is not None)
        for place in range(batches):
            if place == batches - 1:
                prepare_for_final_backward(self.parts, pp_enabled=self.pipeline is not None)
            tokens = torch.randint(self.words, (self.o.batch, self.o.sequence + 1))
            torch.cuda.synchronize()  # its timers do, before and after each
            self.batch(tokens, losses, batches)
            torch.cuda.synchronize()
            if place == 0:
                prepare_after_first_microbatch()
        self.optimizer.step()
        if losses:
            torch.stack(losses).sum().item()

    def batch(self, tokens: torch.Tensor, losses: list[torch.Tensor], batches: int) -> None:
        """Forward and backward of one."""
        inputs, labels = (
            part.contiguous().to(self.device, non_blocking=True) for part in (tokens[:, :-1], tokens[:, 1:])
        )
        positions = torch.arange(self.o.sequence).expand(self.o.batch, -1).to(self.device, non_blocking=True)
        if self.pipeline:
            self.pipeline.update_seq_len(self.o.sequence)
            is_last = self.pipeline.info.has_last_stage
            target = labels if is_last else None
            self.pipeline.step(inputs, target=target, losses=losses if is_last else None, position_ids=positions)
            return
        logits = self.parts[0](inputs, position_ids=positions)
        loss = self.loss_fn(getattr(logits, "logits", logits), labels)
        losses.append(loss.detach())
        del logits
        (loss * dist.get_world_size() / batches).backward()


def main() -> None:
    """A few steps."""
    o = parse()
    install_extensions()
    dist.init_process_group("nccl")
    device = torch.device("cuda", int(dist.get_rank() % torch.cuda.device_count()))
    torch.cuda.set_device(device)
    torch.manual_seed(1234)
    trainer = Trainer(o, device)
    for place in range(o.steps):
        trainer.step(o.accumulate[min(place, len(o.accumulate) - 1)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
