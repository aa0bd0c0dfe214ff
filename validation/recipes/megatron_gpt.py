"""A GPT or Llama as Megatron-core trains it: TP with sequence parallelism, PP, DP, its own DDP and optimizer.

Needs ``pip install megatron-core``. Layers are the local ones (without Transformer Engine); ``--attention flash`` puts
PyTorch's fused attention in the place of Megatron's unfused one, which Transformer Engine users never see.
"""

import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer import MegatronModule, TransformerConfig
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build


class FusedAttention(MegatronModule):
    """PyTorch's fused attention with the interface of Megatron's core attention: [sequence, batch, heads, dim]."""

    def __init__(self, config, *args, **kwargs) -> None:
        super().__init__(config)

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


def parse() -> argparse.Namespace:
    """Shapes, parallelism, precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "ffn", "heads", "kv-heads", "vocab", "sequence", "batch", "accumulate"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("tensor-parallel", "pipeline-parallel"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--virtual-pipeline", type=int)
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--distributed-optimizer", action="store_true")
    parser.add_argument("--overlap", action="store_true", help="gradients and parameters travel beside compute")
    parser.add_argument("--precision", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--style", choices=("gpt", "llama"), default="llama")
    parser.add_argument("--attention", choices=("flash", "unfused"), default="flash")
    parser.add_argument("--checkpoint", action="store_true", help="recompute every layer")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def configure(o: argparse.Namespace) -> TransformerConfig:
    """Megatron's configuration of the model and of its parallelism."""
    llama = o.style == "llama"
    return TransformerConfig(
        num_layers=o.layers,
        hidden_size=o.hidden,
        ffn_hidden_size=o.ffn,
        num_attention_heads=o.heads,
        num_query_groups=o.kv_heads,
        tensor_model_parallel_size=o.tensor_parallel,
        pipeline_model_parallel_size=o.pipeline_parallel,
        virtual_pipeline_model_parallel_size=o.virtual_pipeline,
        sequence_parallel=o.sequence_parallel and o.tensor_parallel > 1,
        pipeline_dtype=torch.bfloat16 if o.precision == "bf16" else torch.float16,
        params_dtype=torch.bfloat16 if o.precision == "bf16" else torch.float16,
        bf16=o.precision == "bf16",
        fp16=o.precision == "fp16",
        add_bias_linear=not llama,
        gated_linear_unit=llama,
        activation_func=F.silu if llama else F.gelu,
        bias_activation_fusion=True,
        bias_dropout_fusion=True,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        normalization="RMSNorm" if llama else "LayerNorm",
        hidden_dropout=0.0 if llama else 0.1,
        attention_dropout=0.0 if llama else 0.1,
        recompute_granularity="full" if o.checkpoint else None,
        recompute_method="uniform" if o.checkpoint else None,
        recompute_num_layers=1 if o.checkpoint else None,
        cross_entropy_loss_fusion=llama,
        attention_softmax_in_fp32=False,
    )


def build(o: argparse.Namespace, config: TransformerConfig) -> list[torch.nn.Module]:
    """The rank's part of the model (several with a virtual pipeline), under Megatron's data parallelism."""
    spec = get_gpt_layer_local_spec(normalization=config.normalization)
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
    if o.attention == "flash":
        spec.submodules.self_attention.submodules.core_attention = FusedAttention
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=o.overlap,
        overlap_param_gather=o.overlap and o.distributed_optimizer,
        use_distributed_optimizer=o.distributed_optimizer,
    )
    chunks = []
    for index in range(o.virtual_pipeline or 1):
        stage = {} if o.virtual_pipeline is None else {"ignore_virtual": False, "vp_stage": index}
        layers = get_num_layers_to_build(config, vp_stage=None if o.virtual_pipeline is None else index)
        model = GPTModel(
            config,
            TransformerBlockSubmodules([spec] * layers, Norm),
            vocab_size=o.vocab,
            max_sequence_length=o.sequence,
            pre_process=parallel_state.is_pipeline_first_stage(**stage),
            post_process=parallel_state.is_pipeline_last_stage(**stage),
            position_embedding_type="rope" if o.style == "llama" else "learned_absolute",
            share_embeddings_and_output_weights=o.style == "gpt",
            **({} if o.virtual_pipeline is None else {"vp_stage": index}),
        ).cuda()
        model.model_type = ModelType.encoder_or_decoder
        model = model.to(config.params_dtype)
        chunks.append(DistributedDataParallel(config, ddp, model, disable_bucketing=index > 0))
    return chunks


def fuse(optimizer) -> None:
    """One kernel without temporaries, as Transformer Engine's and Apex's Adam, in the place of PyTorch's default."""
    for each in getattr(optimizer, "chained_optimizers", [optimizer]):
        for group in each.optimizer.param_groups:
            group.update(fused=True, foreach=False)


def forward_step(o, batches, model):
    """One micro-batch: the output and what makes a loss of it."""
    tokens = next(batches)
    positions = torch.arange(o.sequence, device="cuda").expand_as(tokens)
    mask = None
    if o.attention == "unfused":
        mask = torch.triu(torch.ones(1, 1, o.sequence, o.sequence, dtype=torch.bool, device="cuda"), 1)
    output = model(tokens, positions, mask, labels=tokens)
    return output, lambda out: (out.float().mean(), {"loss": out.detach().mean()})


def main() -> None:
    """A few steps on random tokens."""
    o = parse()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        o.tensor_parallel, o.pipeline_parallel, virtual_pipeline_model_parallel_size=o.virtual_pipeline
    )
    model_parallel_cuda_manual_seed(1)
    config = configure(o)
    chunks = build(o, config)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            bf16=config.bf16,
            fp16=config.fp16,
            params_dtype=config.params_dtype,
            use_distributed_optimizer=o.distributed_optimizer,
            overlap_param_gather=o.overlap and o.distributed_optimizer,
            clip_grad=1.0,
        ),
        chunks,
    )
    fuse(optimizer)
    config.finalize_model_grads_func = finalize_model_grads
    config.no_sync_func = [chunk.no_sync for chunk in chunks] if o.overlap else None
    config.no_sync_func = config.no_sync_func[0] if config.no_sync_func and len(chunks) == 1 else config.no_sync_func
    config.grad_scale_func = optimizer.scale_loss
    schedule = get_forward_backward_func()

    def batches():
        while True:
            yield torch.randint(o.vocab, (o.batch, o.sequence), device="cuda")

    streams = [batches() for _ in chunks]
    for _ in range(o.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=partial(forward_step, o),
            data_iterator=streams if len(chunks) > 1 else streams[0],
            model=chunks if len(chunks) > 1 else chunks[0],
            num_microbatches=o.accumulate,
            seq_length=o.sequence,
            micro_batch_size=o.batch,
            forward_only=False,
        )
        optimizer.step()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
