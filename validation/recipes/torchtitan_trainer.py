"""torchtitan's own trainer on random tokens: what `torchrun -m torchtitan.train` runs, with its settings as options.

Needs torchtitan. Left out are what its log costs (norms of gradients are still computed), validation and checkpoints.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import inspect
import tempfile

import torch
import torch._utils_internal
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._utils import _StageBackwardMeta, _StageForwardMeta, extract_tensor_meta
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.lora import LoRAConverter
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.quantization import Float8LinearConverter
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.trainer import Trainer

_CLOCK_MHZ = 1980  # an H100's
_CHECKPOINTING = {"none": lambda: None, "selective": SelectiveAC.Config, "full": FullAC.Config}


class NoTokenizer(BaseTokenizer):
    """The tokens are drawn, not read."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to set."""

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:
        super().__init__()

    def encode(self, *args, **kwargs) -> list[int]:
        raise NotImplementedError

    decode = encode

    def get_vocab_size(self) -> int:
        raise NotImplementedError


class RandomTokens(BaseDataLoader):
    """Batches of tokens that fill the sequence as one document."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """``words``: size of the vocabulary."""

        words: int = 0

    def __init__(self, config: Config, *, seq_len: int, local_batch_size: int, **others) -> None:
        self.words, self.shape = config.words, (local_batch_size, seq_len)

    def __iter__(self):
        while True:
            tokens = torch.randint(self.words, self.shape)
            yield {"input": tokens, "positions": torch.arange(self.shape[1]).expand(self.shape)}, tokens

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state_dict: dict) -> None:
        pass


def custom(shapes: list[int]) -> None:
    """A flavor of Llama 3 with other shapes: layers, width, width of the FFN, heads, those of keys, vocabulary."""
    from torchtitan.models import llama3
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm

    layers, width, ffn, heads, kv_heads, words = shapes

    def build(attn_backend: str, tp_gemm_backend="default"):
        rope = ComplexRoPE.Config(dim=width // heads, max_seq_len=131072, theta=500000, scaling="llama")
        return llama3.Llama3Model.Config(
            dim=width,
            vocab_size=words,
            tok_embeddings=Embedding.Config(
                num_embeddings=words, embedding_dim=width, param_init=llama3._EMBEDDING_INIT
            ),
            norm=RMSNorm.Config(normalized_shape=width, param_init=llama3._NORM_INIT),
            lm_head=Linear.Config(in_features=width, out_features=words, param_init=llama3._output_linear_init(width)),
            layers=llama3._build_llama3_layers(
                n_layers=layers,
                dim=width,
                n_heads=heads,
                n_kv_heads=kv_heads,
                hidden_dim=ffn,
                rope=rope,
                attn_backend=attn_backend,
                tp_gemm_backend=tp_gemm_backend,
            ),
        )

    llama3.llama3_configs["custom"] = build


def parse() -> argparse.Namespace:
    """The model and the way to train it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", required=True, help="module of torchtitan's models, e.g. llama3")
    parser.add_argument("--flavor", default="custom", help="of the family, e.g. 8B")
    parser.add_argument("--shapes", type=_counts, help="of a Llama: layers,width,FFN,heads,those of keys,vocabulary")
    parser.add_argument("--layers", type=int, help="keep the first ones of the flavor only")
    for name in ("sequence", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("microbatch", "tensor-parallel", "pipeline-parallel", "context-parallel", "expert-parallel"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--global-batch", type=int, default=-1)
    parser.add_argument("--accumulate", type=_counts, help="batches of each step: 4, or 1,2,6")
    parser.add_argument("--replicas", type=int, default=1, help="of what FSDP splits")
    parser.add_argument("--schedule", default="1F1B")
    parser.add_argument("--layers-per-stage", type=int)
    parser.add_argument("--ends-count-as", type=_counts, default=[1, 1], help="layers that embedding and output cost")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of what is trained")
    parser.add_argument("--lora", type=int, help="rank of the adapters that are trained while the rest is frozen")
    parser.add_argument("--lora-targets", default="wq,wk,wv,wqkv,wo,w1,w2,w3", help="what has them")
    parser.add_argument("--offload", action="store_true", help="parameters, gradients and their updates to the CPU")
    parser.add_argument("--checkpoint", choices=tuple(_CHECKPOINTING), default="none")
    parser.add_argument("--chunked-loss", action="store_true", help="output layer and loss in eight pieces")
    parser.add_argument("--compile", action="store_true", help="block by block, and the loss")
    parser.add_argument("--async-tensor-parallel", action="store_true", help="needs --compile")
    parser.add_argument("--float8", choices=("tensorwise", "rowwise"), help="needs torchao")
    parser.add_argument("--exchange", help="of experts' tokens, e.g. hybridep; else all-to-all by NCCL")
    parser.add_argument("--even", action="store_true", help="tokens go to experts in turn, whatever the gate says")
    parser.add_argument("--traced", action="store_true", help="by its graph trainer, as one graph")
    parser.add_argument("--graphs", action="store_true", help="forward and backward as one CUDA graph")
    parser.add_argument("--backend", default="spmd_types", help="of sharded tensors")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    return [int(count) for count in text.split(",")]


def model_of(o: argparse.Namespace):
    """The specification of the family's model."""
    registry = importlib.import_module(f"torchtitan.models.{o.family}").model_registry
    if o.shapes:
        custom(o.shapes)
    converters = []
    if o.lora:
        targets = o.lora_targets.split(",")
        converters.append(LoRAConverter.Config(rank=o.lora, alpha=2.0 * o.lora, target_modules=targets))
    if o.float8:
        converters.append(
            Float8LinearConverter.Config(
                recipe_name=o.float8, filter_fqns=["lm_head", "router.gate"], model_compile_enabled=o.compile
            )
        )
    exchange = {"moe_comm_backend": o.exchange} if o.exchange else {}
    if o.exchange == "hybridep" and "non_blocking_capacity_factor" in inspect.signature(registry).parameters:
        exchange["non_blocking_capacity_factor"] = 1.0  # room for a balanced exchange, so that no host waits for counts
    model = registry(o.flavor, attn_backend="flex", converters=converters or None, **exchange)
    if o.layers:
        model.model.layers = model.model.layers[: o.layers]
    return dataclasses.replace(model, parallelize_fn=only_adapters(model.parallelize_fn)) if o.lora else model


def only_adapters(parallelize):
    """Splitting makes parameters anew, which would all be trained again."""

    def split(model, **settings):
        model = parallelize(model, **settings)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".lora_" in name)
        return model

    return split


def configure(o: argparse.Namespace) -> Trainer.Config:
    """torchtitan's configuration."""
    model = model_of(o)
    words = decoder_vocab_size(model)
    loss = CrossEntropyLoss.Config(global_vocab_size=words)
    return Trainer.Config(
        model_spec=model,
        dump_folder=tempfile.mkdtemp(prefix="torchtitan-"),
        tokenizer=NoTokenizer.Config(),
        dataloader=RandomTokens.Config(words=words),
        loss=ChunkedLossWrapper.Config(loss_fn=loss) if o.chunked_loss else loss,
        optimizer=default_adamw(lr=1e-4),
        training=TrainingConfig(
            local_batch_size=o.batch,
            global_batch_size=o.global_batch,
            seq_len=o.sequence,
            steps=o.steps,
            disable_cuda_graphs=not o.graphs,
            dtype=o.dtype,
            enable_cpu_offload=o.offload,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=o.replicas,
            tensor_parallel_degree=o.tensor_parallel,
            pipeline_parallel_degree=o.pipeline_parallel,
            pipeline_parallel_schedule=o.schedule,
            pipeline_parallel_microbatch_size=o.microbatch,
            pipeline_parallel_layers_per_stage=o.layers_per_stage,
            pipeline_parallel_first_stage_less_layers=o.ends_count_as[0],
            pipeline_parallel_last_stage_less_layers=o.ends_count_as[1],
            context_parallel_degree=o.context_parallel,
            expert_parallel_degree=o.expert_parallel,
            spmd_backend=o.backend,
        ),
        compile=CompileConfig(
            enable=o.compile, enable_async_tensor_parallel=o.async_tensor_parallel, components=["model", "loss"]
        ),
        activation_checkpoint=_CHECKPOINTING[o.checkpoint](),
        debug=DebugConfig(moe_force_load_balance=o.even),
        metrics=MetricsProcessor.Config(log_freq=1000),
        checkpoint=CheckpointManager.Config(enable=False),
    )


def traced(o: argparse.Namespace, config: Trainer.Config):
    """The same for torchtitan's graph trainer, whose model and compilation are its own."""
    from torchtitan.experiments.graph_trainer.configs import GraphTrainerCompileConfig, to_graph_trainer_config

    if importlib.util.find_spec("pynvml") is None:  # its passes ask the driver how fast the GPU can be
        torch._utils_internal.max_clock_rate = lambda: _CLOCK_MHZ
    registry = importlib.import_module(f"torchtitan.experiments.graph_trainer.{o.family}").model_registry
    config = to_graph_trainer_config(config, registry)
    passes = [] if o.graphs else ["cudagraph_pass"]
    config.compile = GraphTrainerCompileConfig(
        enable=True, memory_policy="full" if o.checkpoint == "full" else "default", disable_passes=passes
    )
    return config


def agree_on_shapes(o: argparse.Namespace, width: int) -> None:
    """Let each pipeline stage know what its neighbours hand over, which they would tell each other before they start.

    Positions are split over tensor and context parallelism between layers; gradients are like what they are of.
    """
    length = o.sequence // (o.tensor_parallel * o.context_parallel)

    def handed_over(stage: PipelineStage, neighbour: int) -> _StageForwardMeta | _StageBackwardMeta:
        like = torch.empty(o.microbatch, length, width, dtype=torch.bfloat16, device="meta")
        if neighbour > stage.stage_index:
            return _StageBackwardMeta((extract_tensor_meta(like),))
        return _StageForwardMeta((extract_tensor_meta(like.requires_grad_()),))

    PipelineStage._recv_meta = handed_over
    PipelineStage._send_meta = lambda stage, meta, neighbour: None


def accumulate(trainer: Trainer, counts: list[int]) -> None:
    """So many batches in the first step, in the second, in those that follow."""
    step = trainer.train_step

    def counted(batches) -> None:
        trainer.gradient_accumulation_steps = counts[min(trainer.step, len(counts)) - 1]
        step(batches)

    trainer.train_step = counted


def main() -> None:
    """A few steps."""
    o = parse()
    config = traced(o, configure(o)) if o.traced else configure(o)
    agree_on_shapes(o, config.model_spec.model.dim)
    trainer = config.build()
    if o.accumulate:
        accumulate(trainer, o.accumulate)
    trainer.train()
    torch.cuda.synchronize()
    trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
