"""Megatron-LM: the arguments of its ``pretrain_gpt.py``, and a program on megatron-core that takes them.

Names and values are those of Megatron-LM's parser, compared one by one with a public listing that was generated from it
late in 2025, and of the configuration of megatron-core 0.16.1. The parser's help calls one value of ``--cp-comm-type``
allgather; megatron-core and Transformer Engine take all_gather.
"""

from __future__ import annotations

from presim.composition.launch_files.launch_job import Files, LaunchJob, check_supported, program, quoted, torchrun
from presim.composition.launch_files.layer_passes import words_of
from presim.composition.launch_files.shapes import Shapes, shapes
from presim.composition.plan import Plan
from presim.composition.stage_split import even_sizes
from presim.errors import InputError

NAME, PROGRAM, ARGUMENTS = "megatron", "train_megatron.py", "megatron.args"
_CONTEXT = {"all-gather": "all_gather", "ulysses": "a2a", "ring": "p2p"}  # context style -> --cp-comm-type
_DISPATCHERS = {"all-to-all": "alltoall", "all-gather": "allgather", "deepep": "flex"}
_WORDS = "Megatron-LM splits embedding, output layer and loss by vocabulary, but the plan does not."


def files(job: LaunchJob) -> Files:
    """Arguments, program and command.

    Raises:
        InputError: Megatron-LM cannot express the plan or the model.
    """
    plan = job.plan
    check_supported(
        "Megatron-LM",
        plan,
        (
            *("tensor", "sequence_parallel", "vocabulary_parallel", "context", "context_style", "expert"),
            *("expert_exchange", "expert_capacity", "pad_experts", "pipeline", "virtual", "stages", "overlap"),
            *("recompute", "recompute_whole", "recompute_blocks", "offload_activations"),
            *("shard", "reshard", "keep_last", "separate_ends"),  # of FSDP2
        ),
        data_style=("zero1",),
        offload_optimizer=("none", "cpu"),
        attention=("auto", "cudnn", "flash"),
        schedule=("", "1f1b", "interleaved"),
    )
    model = shapes(job.config)
    _check_stages(job, model)
    _check_offload(plan, model)
    words = [*_model(model, job), *_parallelism(job), *_training(job), *_offload(plan)]
    words += words_of("Megatron-LM", plan)
    lines = "".join(f"{quoted([word])}{chr(10) if last else ' '}" for word, last in _words_with_line_ends(words))
    return Files(
        framework=NAME,
        files={ARGUMENTS: lines, PROGRAM: program("megatron")},
        command=torchrun(job, PROGRAM, *words),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        notes=(
            *(() if plan.splits_words or plan.tensor == 1 else (_WORDS,)),
            "Megatron-LM runs Transformer Engine's layers instead of PyTorch's.",
            f"In a checkout of Megatron-LM: torchrun … pretrain_gpt.py $(cat {ARGUMENTS}).",
        ),
    )


def _words_with_line_ends(words: list[str]) -> list[tuple[str, bool]]:
    """Each word, and whether it ends a line: one option per line."""
    following = [*words[1:], "--"]
    return [(word, after.startswith("--")) for word, after in zip(words, following)]


def _check_stages(job: LaunchJob, model: Shapes) -> None:
    plan = job.plan
    sizes = plan.stages or even_sizes(model.layers, plan.pipeline * plan.virtual)
    if len(set(sizes)) > 1:
        raise InputError(
            f"Megatron-LM cannot express this plan's stages of {', '.join(map(str, sizes))} blocks: its stages are "
            f"equal, but {model.layers} % {len(sizes)} = {model.layers % len(sizes)}"
        )


def _check_offload(plan: Plan, model: Shapes) -> None:
    """Check what megatron-core's configuration asks of offloaded activations."""
    count = plan.offload_activations
    if count and plan.pipeline > 1:
        raise InputError(
            f"Megatron-LM offloads activations without a pipeline only, not with pipeline = {plan.pipeline}"
        )
    if count and plan.recompute != "none":
        raise InputError(f"Megatron-LM offloads activations without recomputation only, not with {plan.recompute}")
    if count >= model.layers:
        raise InputError(f"Megatron-LM offloads at most {model.layers - 1} of {model.layers} layers, not {count}")


def _model(model: Shapes, job: LaunchJob) -> list[str]:
    words: list[object] = ["--num-layers", model.layers, "--hidden-size", model.hidden]
    words += ["--ffn-hidden-size", model.feed_forward, "--num-attention-heads", model.heads]
    words += ["--kv-channels", model.head_size]
    if model.kv_heads != model.heads:
        words += ["--group-query-attention", "--num-query-groups", model.kv_heads]
    words += ["--max-position-embeddings", max(model.positions, job.plan.sequence), "--normalization", "RMSNorm"]
    words += ["--norm-epsilon", f"{model.epsilon:g}", "--position-embedding-type", "rope"]
    words += ["--rotary-base", int(model.rotary_base), "--swiglu", "--disable-bias-linear"]
    words += ["--attention-dropout", "0.0", "--hidden-dropout", "0.0"]
    words += ["--add-qkv-bias"] if model.has_query_bias else []
    words += ["--qk-layernorm"] if model.has_query_norm else []
    words += [] if model.is_tied else ["--untie-embeddings-and-output-weights"]
    words += ["--tokenizer-type", "NullTokenizer", "--vocab-size", model.vocabulary - 1]  # Megatron adds one token
    words += ["--make-vocab-size-divisible-by", 1]
    if model.experts:
        words += ["--num-experts", model.experts, "--moe-router-topk", model.experts_per_token]
        words += ["--moe-ffn-hidden-size", model.feed_forward, "--moe-grouped-gemm"]
        words += _dispatcher(job.plan)
    return [str(word) for word in words]


def _dispatcher(plan: Plan) -> list[object]:
    """How tokens reach their experts, and what an expert takes of them."""
    words: list[object] = ["--moe-token-dispatcher-type", _DISPATCHERS[plan.expert_exchange]]
    if plan.expert_exchange == "deepep":  # which takes weights in fp32
        words += ["--moe-flex-dispatcher-backend", "deepep", "--moe-router-dtype", "fp32"]
    if plan.expert_capacity:
        words += ["--moe-expert-capacity-factor", f"{plan.expert_capacity:g}"]
    return words + (["--moe-pad-expert-input-to-capacity"] if plan.pad_experts else [])


def _parallelism(job: LaunchJob) -> list[str]:
    plan = job.plan
    words: list[object] = ["--tensor-model-parallel-size", plan.tensor]
    words += ["--pipeline-model-parallel-size", plan.pipeline]
    if plan.virtual > 1:
        words += ["--num-virtual-stages-per-pipeline-rank", plan.virtual]
    words += ["--context-parallel-size", plan.context]
    if plan.context > 1:
        words += ["--cp-comm-type", _CONTEXT[plan.context_style]]
    expert = getattr(plan, "expert", 1)
    words += ["--expert-model-parallel-size", expert] if expert > 1 else []
    words += ["--sequence-parallel"] if plan.sequence_parallel and plan.tensor > 1 else []
    words += ["--use-distributed-optimizer"]
    words += ["--overlap-grad-reduce", "--overlap-param-gather"] if plan.overlap else []
    return [str(word) for word in words]


def _training(job: LaunchJob) -> list[str]:
    plan = job.plan
    batch = plan.global_batch or plan.micro_batch * plan.data(job.world_size)
    words: list[object] = ["--seq-length", plan.sequence, "--micro-batch-size", plan.micro_batch]
    words += ["--global-batch-size", batch, "--train-iters", 10, "--bf16", "--mock-data"]
    words += ["--optimizer", "adam", "--lr", "3e-4", "--weight-decay", "0.1"]
    words += ["--clip-grad", "1.0" if plan.clip else "0.0"]
    if plan.recompute == "full":
        words += ["--recompute-granularity", "full"]
        words += ["--recompute-method", "block" if plan.recompute_blocks else "uniform"]
        words += ["--recompute-num-layers", plan.recompute_blocks or 1]
    backend = {"auto": "auto", "cudnn": "fused", "flash": "flash"}[plan.attention]
    words += ["--attention-backend", backend, "--transformer-impl", "transformer_engine"]
    words += ["--no-gradient-accumulation-fusion"]
    return [str(word) for word in words]


def _offload(plan: Plan) -> list[str]:
    words: list[object] = []
    if plan.offload_activations:
        words += ["--cpu-offloading-num-layers", plan.offload_activations]
    if plan.offload_optimizer == "cpu":
        words += ["--optimizer-cpu-offload", "--optimizer-offload-fraction", "1.0", "--use-precision-aware-optimizer"]
        words += ["--overlap-cpu-optimizer-d2h-h2d"]
    return [str(word) for word in words]
