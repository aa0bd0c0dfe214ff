"""A GPT, Llama or Mixture of Experts as Megatron-core trains it: TP, SP, PP, CP, EP, its own DDP and optimizer.

Needs ``pip install megatron-core``. ``--engine te`` takes Transformer Engine's layers, as published runs do; ``local``
is Megatron's own with PyTorch's fused attention in the place of its unfused one, unless ``--attention unfused`` keeps
that. ``--set FIELD=VALUE`` sets any field of Megatron's TransformerConfig.
"""

import argparse
import ast
import os
from functools import partial

import megatron_layers
import torch
import torch.distributed as dist
import torch.nn.functional as F

megatron_layers.install_weight_gradient_fusion()
megatron_layers.install_masked_softmax_fusion()

import megatron_lora  # noqa: E402 - this and the next ones look for the fusions when they are imported
import megatron_overlap  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.fusions.fused_bias_geglu import quick_gelu  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402
from megatron.core.transformer import MLATransformerConfig, TransformerConfig  # noqa: E402
from megatron.core.transformer.enums import AttnBackend  # noqa: E402
from megatron.core.transformer.moe.router import Router  # noqa: E402

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def parse() -> argparse.Namespace:
    """Shapes, parallelism, precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "hidden", "ffn", "heads", "kv-heads", "vocab", "sequence", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--accumulate", type=_counts, required=True, help="micro-batches of each step: 8, or 2,4,8")
    for name in ("tensor-parallel", "pipeline-parallel", "context-parallel", "expert-parallel"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--expert-tensor-parallel", type=int)
    parser.add_argument("--virtual-pipeline", type=int)
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument(
        "--overlap-tensor-parallel", action="store_true", help="as userbuffers do; see megatron_overlap"
    )
    parser.add_argument("--distributed-optimizer", action="store_true")
    parser.add_argument("--overlap", action="store_true", help="gradients and parameters travel beside compute")
    parser.add_argument("--precision", choices=tuple(_DTYPES), default="bf16")
    parser.add_argument("--gradients", choices=("fp32", "model"), default="fp32", help="what gradients are summed in")
    parser.add_argument("--average-in-collective", action="store_true", help="gradients are averaged while summed")
    parser.add_argument("--style", choices=("gpt", "llama", "gpt-oss"), default="llama")
    parser.add_argument("--tied", action="store_true", help="the output layer is the embedding")
    parser.add_argument("--positions", choices=("rope", "learned"), default="rope")
    parser.add_argument("--engine", choices=("te", "local"), default="local")
    parser.add_argument("--attention", choices=("auto", "flash", "fused", "unfused"), default="auto")
    parser.add_argument("--attention-mask", action="store_true", help="batches carry one, as Megatron's do")
    parser.add_argument("--deterministic", action="store_true", help="as Megatron's --deterministic-mode")
    parser.add_argument("--optimizer-instances", type=int, default=1, help="replicas of the distributed optimizer")
    parser.add_argument("--no-weight-gradient-fusion", action="store_true")
    parser.add_argument("--checkpoint", action="store_true", help="recompute every layer")
    parser.add_argument("--recompute", help="what each layer computes again, e.g. layernorm,moe_act")
    parser.add_argument("--lora", type=int, help="rank of the adapters that are trained while the rest is frozen")
    parser.add_argument("--lora-targets", default="linear_qkv", help="what has them, e.g. linear_qkv,linear_proj")
    parser.add_argument("--fsdp", action="store_true", help="Megatron's own: parameters, gradients and state are split")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="of TransformerConfig")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    return [int(count) for count in text.split(",")]


_STYLES = {  # what models of a family have in common
    "gpt": {"normalization": "LayerNorm", "activation_func": F.gelu, "hidden_dropout": 0.1, "attention_dropout": 0.1},
    "llama": {"activation_func": F.silu, "gated_linear_unit": True, "add_bias_linear": False},
    "gpt-oss": {
        "activation_func": quick_gelu,
        "gated_linear_unit": True,
        "glu_linear_offset": 1.0,
        "activation_func_clamp_value": 7.0,
        "softmax_type": "learnable",
        "bias_dropout_fusion": False,
    },
}


_DEFAULTS = {"gated_linear_unit": False, "add_bias_linear": True}  # TransformerConfig's


def configure(o: argparse.Namespace) -> TransformerConfig:
    """Megatron's configuration of the model and of its parallelism."""
    dtype = _DTYPES[o.precision]
    fields = dict(
        num_layers=o.layers,
        hidden_size=o.hidden,
        ffn_hidden_size=o.ffn,
        num_attention_heads=o.heads,
        num_query_groups=o.kv_heads,
        tensor_model_parallel_size=o.tensor_parallel,
        pipeline_model_parallel_size=o.pipeline_parallel,
        virtual_pipeline_model_parallel_size=o.virtual_pipeline,
        context_parallel_size=o.context_parallel,
        expert_model_parallel_size=o.expert_parallel,
        expert_tensor_parallel_size=o.expert_tensor_parallel,
        sequence_parallel=o.sequence_parallel and o.tensor_parallel > 1,
        pipeline_dtype=dtype,
        params_dtype=dtype,
        bf16=o.precision == "bf16",
        fp16=o.precision == "fp16",
        bias_dropout_fusion=True,
        masked_softmax_fusion=o.attention == "unfused",
        gradient_accumulation_fusion=not o.no_weight_gradient_fusion,
        normalization="RMSNorm",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        recompute_granularity="full" if o.checkpoint else "selective" if o.recompute else None,
        recompute_modules=o.recompute.split(",") if o.recompute else None,
        recompute_method="uniform" if o.checkpoint else None,
        recompute_num_layers=1 if o.checkpoint else None,
        cross_entropy_loss_fusion=o.style != "gpt",
        cross_entropy_fusion_impl="te" if o.engine == "te" else "native",
        attention_softmax_in_fp32=False,
        deallocate_pipeline_outputs=True,
        overlap_p2p_comm=o.virtual_pipeline is not None,  # as Megatron-LM does where a rank has several stages
        batch_p2p_comm=o.virtual_pipeline is None,
        attention_backend=AttnBackend[o.attention],
        deterministic_mode=o.deterministic,
    )
    fields |= _STYLES[o.style]
    fields |= dict(_field(text) for text in o.set)
    gated, biased = (fields.get(name, default) for name, default in _DEFAULTS.items())
    if gated and fields["activation_func"] is F.gelu:  # Megatron's --swiglu
        fields["activation_func"] = F.silu
    fields.setdefault("bias_activation_fusion", gated or biased)
    mla = fields.pop("multi_latent_attention", False)
    return (MLATransformerConfig if mla else TransformerConfig)(**fields)


def _field(text: str):
    """``name=literal``; what is no literal of Python is a word."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def build(o: argparse.Namespace, config: TransformerConfig) -> list[torch.nn.Module]:
    """The rank's part of the model (several with a virtual pipeline), under Megatron's data parallelism."""
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=o.gradients == "fp32",
        overlap_grad_reduce=o.overlap,
        overlap_param_gather=o.overlap and o.distributed_optimizer,
        use_distributed_optimizer=o.distributed_optimizer,
        num_distributed_optimizer_instances=o.optimizer_instances,
        average_in_collective=o.average_in_collective,
        fp8_param_gather=bool(config.fp8_param),
        use_megatron_fsdp=o.fsdp,
        data_parallel_sharding_strategy="optim_grads_params" if o.fsdp else "no_shard",
    )
    chunks = []
    for index in range(o.virtual_pipeline or 1):
        stage = {} if o.virtual_pipeline is None else {"ignore_virtual": False, "vp_stage": index}
        chunk = None if o.virtual_pipeline is None else index
        spec = megatron_layers.block_spec(config, o.engine, o.attention, chunk)
        model = GPTModel(
            config,
            spec,
            mtp_block_spec=megatron_layers.prediction_spec(config, spec, o.engine, chunk),
            vocab_size=o.vocab,
            max_sequence_length=o.sequence,
            pre_process=parallel_state.is_pipeline_first_stage(**stage),
            post_process=parallel_state.is_pipeline_last_stage(**stage),
            position_embedding_type="rope" if o.positions == "rope" else "learned_absolute",
            share_embeddings_and_output_weights=o.tied,
            **({} if chunk is None else {"vp_stage": chunk}),
        ).cuda()
        model.model_type = ModelType.encoder_or_decoder
        quantised = config.fp8 or config.fp4  # its layers have their types already, its embeddings and routers not
        plain = (torch.nn.Embedding, Router)
        parts = [each for each in model.modules() if isinstance(each, plain)] if quantised else [model]
        for part in parts:
            part.to(config.params_dtype)
        if o.lora:
            megatron_lora.adapt(model, o.lora, o.lora_targets.split(","))
        chunks.append(_parallel(o, config, ddp, model, index))
    return chunks


def _parallel(o, config, ddp, model, index: int) -> torch.nn.Module:
    """Under Megatron's data parallelism, or its own fully sharded one."""
    if o.fsdp:
        from megatron.core.distributed.fsdp.mcore_fsdp_adapter import FullyShardedDataParallel

        megatron_layers.leave_out_checks_of_shards()
        return FullyShardedDataParallel(config, ddp, model)
    return DistributedDataParallel(config, ddp, model, disable_bucketing=index > 0)


def fuse(optimizer) -> None:
    """One kernel without temporaries, as Transformer Engine's and Apex's Adam, in the place of PyTorch's default."""
    for each in getattr(optimizer, "chained_optimizers", [optimizer]):
        for group in each.optimizer.param_groups:
            group.update(fused=True, foreach=False)


def forward_step(o, batches, model, return_schedule_plan=False):
    """One micro-batch: the output, or how its layers can run beside another's, and what makes a loss of it."""
    tokens = next(batches)
    positions = torch.arange(tokens.shape[1], device="cuda").expand_as(tokens)
    shape = (tokens.shape[0], 1, tokens.shape[1], o.sequence)
    mask = torch.zeros(shape, dtype=torch.bool, device="cuda") if o.attention_mask else None
    run = model.build_schedule_plan if return_schedule_plan else model
    output = run(tokens, positions, mask, labels=tokens)
    return output, lambda out: (out.float().mean(), {"loss": out.detach().mean()})


def be_deterministic() -> None:
    """What Megatron's --deterministic-mode asks of PyTorch, cuBLAS and Transformer Engine."""
    os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8", NVTE_ALLOW_NONDETERMINISTIC_ALGO="0")
    torch.use_deterministic_algorithms(True)


def prepare(o: argparse.Namespace):
    """Process groups, model and optimizer."""
    if o.deterministic:
        be_deterministic()
    if o.engine == "te":
        megatron_layers.install_flash_attention()
        megatron_layers.install_router_product()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        o.tensor_parallel,
        o.pipeline_parallel,
        virtual_pipeline_model_parallel_size=o.virtual_pipeline,
        context_parallel_size=o.context_parallel,
        expert_model_parallel_size=o.expert_parallel,
        expert_tensor_parallel_size=o.expert_tensor_parallel,
        num_distributed_optimizer_instances=o.optimizer_instances,
    )
    model_parallel_cuda_manual_seed(1)
    if o.overlap_tensor_parallel:
        megatron_overlap.install(parallel_state.get_tensor_model_parallel_group())
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
    if o.engine == "local":
        fuse(optimizer)
    config.finalize_model_grads_func = finalize_model_grads
    config.no_sync_func = [chunk.no_sync for chunk in chunks] if o.overlap else None
    config.no_sync_func = config.no_sync_func[0] if config.no_sync_func and len(chunks) == 1 else config.no_sync_func
    config.grad_scale_func = optimizer.scale_loss
    return chunks, optimizer


def main() -> None:
    """A few steps on random tokens."""
    o = parse()
    chunks, optimizer = prepare(o)
    schedule = get_forward_backward_func()

    def batches():
        while True:
            yield torch.randint(o.vocab, (o.batch, o.sequence // o.context_parallel), device="cuda")

    streams = [batches() for _ in chunks]
    for step in range(o.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=partial(forward_step, o),
            data_iterator=streams if len(chunks) > 1 else streams[0],
            model=chunks if len(chunks) > 1 else chunks[0],
            num_microbatches=o.accumulate[min(step, len(o.accumulate) - 1)],
            seq_length=o.sequence,
            micro_batch_size=o.batch,
            forward_only=False,
        )
        optimizer.step()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
