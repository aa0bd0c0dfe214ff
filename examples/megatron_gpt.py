"""Train a GPT or a mixture of experts with Megatron-core: its parallelism, its optimizer, its schedules.

presim run --gpu h100-sxm -- torchrun --nnodes 1 --nproc-per-node 8 examples/megatron_gpt.py --tensor-parallel 2
"""

import argparse
import os

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.timers import Timers
from megatron.core.transformer import TransformerConfig

VOCABULARY = 51200
SIZES = {  # layers, hidden size, heads
    "tiny": (4, 512, 8),
    "1b": (24, 2048, 16),
    "22b": (48, 6144, 64),
    "175b": (96, 12288, 96),
}


def parse() -> argparse.Namespace:
    """What to train, and how to share it out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="1b")
    parser.add_argument("--experts", type=int, help="a mixture of so many experts, two of which see each token")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--pipeline-parallel", type=int, default=1)
    parser.add_argument("--virtual-pipeline", type=int, help="chunks of layers per stage: interleaved schedule")
    parser.add_argument("--context-parallel", type=int, default=1)
    parser.add_argument("--expert-parallel", type=int, default=1)
    parser.add_argument("--dispatcher", choices=("alltoall", "allgather", "deepep"), default="alltoall")
    parser.add_argument("--capacity", type=float, help="tokens of an expert, relative to an even share; others drop")
    parser.add_argument("--pad-to-capacity", action="store_true", help="every expert computes this many tokens")
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--distributed-optimizer", action="store_true")
    parser.add_argument("--recompute", choices=("full", "selective"))
    parser.add_argument("--transformer-engine", action="store_true", help="its layers instead of Megatron's own")
    parser.add_argument("--cuda-graphs", action="store_true", help="each layer is a graph, forward and backward")
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--log", action="store_true", help="each step's time, by Megatron's timers")
    return parser.parse_args()


def configure(options: argparse.Namespace) -> TransformerConfig:
    """Megatron's configuration of the model."""
    layers, hidden, heads = SIZES[options.model]
    flexible = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"}
    experts = {
        "num_moe_experts": options.experts,
        "moe_router_topk": 2,
        "moe_expert_capacity_factor": options.capacity,
        "moe_pad_expert_input_to_capacity": options.pad_to_capacity,
        **(flexible if options.dispatcher == "deepep" else {"moe_token_dispatcher_type": options.dispatcher}),
    }
    full = {"recompute_method": "uniform", "recompute_num_layers": 1} if options.recompute == "full" else {}
    return TransformerConfig(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        tensor_model_parallel_size=options.tensor_parallel,
        pipeline_model_parallel_size=options.pipeline_parallel,
        virtual_pipeline_model_parallel_size=options.virtual_pipeline,
        context_parallel_size=options.context_parallel,
        expert_model_parallel_size=options.expert_parallel,
        sequence_parallel=options.sequence_parallel,
        add_bias_linear=not options.experts,
        gradient_accumulation_fusion=False,  # needs Apex
        recompute_granularity=options.recompute,
        cuda_graph_impl="local" if options.cuda_graphs else "none",
        **full,
        **(experts if options.experts else {}),
    )


def build(options: argparse.Namespace, config: TransformerConfig) -> list[torch.nn.Module]:
    """The rank's part of the model: one chunk of layers, or several with a virtual pipeline."""
    spec = get_gpt_layer_with_transformer_engine_spec if options.transformer_engine else get_gpt_layer_local_spec
    distributed = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=options.distributed_optimizer,
        overlap_param_gather=options.distributed_optimizer,
        use_distributed_optimizer=options.distributed_optimizer,
    )
    chunks = []
    for chunk in range(options.virtual_pipeline or 1):
        virtual = {"ignore_virtual": False, "vp_stage": chunk} if options.virtual_pipeline else {}
        model = GPTModel(
            config,
            spec(num_experts=options.experts),
            vocab_size=VOCABULARY,
            max_sequence_length=options.sequence,
            pre_process=parallel_state.is_pipeline_first_stage(**virtual),
            post_process=parallel_state.is_pipeline_last_stage(**virtual),
            share_embeddings_and_output_weights=False,
            position_embedding_type="rope",
            **({"vp_stage": chunk} if options.virtual_pipeline else {}),
        )
        chunks.append(
            DistributedDataParallel(config, distributed, model.cuda().bfloat16(), disable_bucketing=chunk > 0)
        )
    return chunks


def batches(options: argparse.Namespace):
    """Random tokens; under context parallelism a rank has its part of each sequence."""
    while True:
        yield torch.randint(
            VOCABULARY, (options.micro_batch, options.sequence // options.context_parallel), device="cuda"
        )


def forward_step(stream, model):
    """One micro-batch: the output, and what makes a loss of it."""
    tokens = next(stream)
    positions = torch.arange(tokens.shape[1], device="cuda").expand_as(tokens)
    mask = torch.ones((1, 1, tokens.shape[1], tokens.shape[1]), dtype=torch.bool, device="cuda").triu(1)
    output = model(tokens, positions, mask, labels=tokens)
    return output, lambda losses: (losses.float().mean(), {"loss": losses.detach().mean()})


def log(options: argparse.Namespace, iteration: int, seconds: float) -> None:
    """In the words of Megatron's training loop, which logs from its last rank only."""
    data_parallel = parallel_state.get_data_parallel_world_size()
    tokens = options.sequence * options.micro_batch * options.micro_batches * data_parallel
    os.write(
        1,  # in one piece, as several ranks print
        f"[rank {dist.get_rank()}] iteration {iteration + 1}/{options.steps} | elapsed time per iteration (ms): "
        f"{seconds * 1000:.3f} | tokens per second: {tokens / seconds:.0f}\n".encode(),
    )


def main() -> None:
    """A few steps."""
    options = parse()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        options.tensor_parallel,
        options.pipeline_parallel,
        virtual_pipeline_model_parallel_size=options.virtual_pipeline,
        context_parallel_size=options.context_parallel,
        expert_model_parallel_size=options.expert_parallel,
    )
    model_parallel_cuda_manual_seed(1, use_cudagraphable_rng=options.cuda_graphs)
    config = configure(options)
    chunks = build(options, config)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=options.distributed_optimizer,
            overlap_param_gather=options.distributed_optimizer,
        ),
        chunks,
    )
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if options.distributed_optimizer:
        hooks = [chunk.no_sync for chunk in chunks]
        config.no_sync_func = hooks if len(hooks) > 1 else hooks[0]
    schedule = get_forward_backward_func()
    streams = [batches(options) for _ in chunks]
    timer = Timers(log_level=0, log_option="max")("interval-time", log_level=0)
    if options.log:
        timer.start(barrier=True)
    for iteration in range(options.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        schedule(
            forward_step_func=forward_step,
            data_iterator=streams if len(streams) > 1 else streams[0],
            model=chunks if len(chunks) > 1 else chunks[0],
            num_microbatches=options.micro_batches,
            seq_length=options.sequence,
            micro_batch_size=options.micro_batch,
            forward_only=False,
        )
        optimizer.step()
        if options.log:
            log(options, iteration, timer.elapsed(barrier=True))


if __name__ == "__main__":
    main()
