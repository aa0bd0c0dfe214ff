"""A Hugging Face Llama in pipeline stages, by a schedule of `torch.distributed.pipelining`, as torchtitan does it.

Each stage is sharded by FSDP2 over the ranks that are not in the pipeline; parameters stay gathered for all
micro-batches, and gradients are reduced once a step. Without a pipeline it accumulates gradients.
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, schedules
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "small": dict(
        hidden_size=256, intermediate_size=512, num_attention_heads=8, num_key_value_heads=4, vocab_size=1024
    ),
    "8b": dict(
        hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256
    ),
}


class Stage(nn.Module):
    """Consecutive layers, with the embedding in the first stage and the head in the last."""

    def __init__(self, config: LlamaConfig, layers: range, first: bool, last: bool) -> None:
        super().__init__()
        with torch.device("meta"):
            whole = LlamaForCausalLM(config)
        self.embed_tokens = whole.model.embed_tokens if first else None
        self.layers = nn.ModuleList([whole.model.layers[index] for index in layers])
        self.norm = whole.model.norm if last else None
        self.lm_head = whole.lm_head if last else None
        self.rotary_emb = whole.model.rotary_emb

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.embed_tokens is not None:
            hidden = self.embed_tokens(hidden)
        positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        embedded = self.rotary_emb(hidden, positions)
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=None, position_ids=positions, position_embeddings=embedded)
        return hidden if self.lm_head is None else self.lm_head(self.norm(hidden))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--schedule", default="1F1B")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=512)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    stages, count = options.stages, options.stages * options.chunks
    mesh = init_device_mesh("cuda", (stages, dist.get_world_size() // stages), mesh_dim_names=("pp", "dp"))
    config = LlamaConfig(
        num_hidden_layers=options.layers,
        max_position_embeddings=131072,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
        **SIZES[options.size],
    )
    place = mesh["pp"].get_local_rank()
    own = [place + stages * chunk for chunk in range(options.chunks)]
    if options.schedule == "DualPipeV":  # down and up again
        own = [place, count - 1 - place]
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    parts, each = [], options.layers // count
    for index in own:
        part = Stage(config, range(index * each, (index + 1) * each), index == 0, index == count - 1)
        for layer in part.layers:
            fully_shard(layer, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
        fully_shard(part, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
        part.to_empty(device="cuda")
        part.rotary_emb = type(part.rotary_emb)(config=config).cuda()
        parts.append(part)
    optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=3e-4, fused=True)

    def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = logits.float()
        labels = nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
        return nn.functional.cross_entropy(logits.view(-1, config.vocab_size), labels.view(-1))

    made = [
        PipelineStage(part, index, count, torch.device("cuda"), group=mesh["pp"].get_group())
        for part, index in zip(parts, own)
    ]
    kind = schedules.get_schedule_class(options.schedule)
    several = issubclass(kind, schedules.PipelineScheduleMulti)
    runner = kind(made if several else made[0], options.micro_batches, loss_fn=loss_of, scale_grads=False)
    for _ in range(3):
        tokens = torch.randint(config.vocab_size, (options.micro_batches, options.sequence), device="cuda")
        losses: list[torch.Tensor] = []
        last = {"target": tokens, "losses": losses} if count - 1 in own else {}
        runner.step(*((tokens,) if 0 in own else ()), **last, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
