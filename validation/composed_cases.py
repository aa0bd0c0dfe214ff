"""Jobs that `composed.py` captures and composes: script, cluster, model, and facts that a capture lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

HF, PIPELINE = "validation/recipes/hf_fsdp2.py", "tests/integration/scripts/llama_pipeline.py"
NONE: Mapping[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Case:
    """One job."""

    name: str
    family: str
    script: str
    words: str  # the script's arguments; {model} is the file with the model's config
    gpus: int
    model: str  # a named model; `module:function` of a factory
    changed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of its config
    gpu: str = "h100-sxm"
    said: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of the plan that a capture does not tell


def _blocks(model: str, count: int) -> dict[str, Any]:
    return {"n_layer" if model.startswith("gpt2") else "num_hidden_layers": count}


def _hf(model: str, blocks: int, gpus: int, words: str, gpu: str = "h100-sxm", family: str = "HF + FSDP2") -> Case:
    """A model of Hugging Face's with fewer blocks."""
    name = f"{model}-{blocks}-{gpu}-{gpus} {words}"
    return Case(name, family, HF, f"{{model}} {words}", gpus, model, _blocks(model, blocks), gpu)


def _hybrid(model: str, blocks: int, gpus: int, words: str) -> Case:
    return _hf(model, blocks, gpus, words, family="HF + HSDP")


def _ddp(model: str, blocks: int, gpus: int, words: str) -> Case:
    return _hf(model, blocks, gpus, f"--style ddp {words}", family="HF + DDP")


def _tensor(model: str, blocks: int, gpus: int, words: str) -> Case:
    return _hf(model, blocks, gpus, words, family="HF + TP (DTensor) + FSDP2")


_SIZES = {
    "small": {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "vocab_size": 1024}
    | {"num_key_value_heads": 4},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "vocab_size": 128256}
    | {"num_key_value_heads": 8},
}
_SCHEDULES = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "zero-bubble",
    "DualPipeV": "dualpipev",
}


def _pipeline(size: str, gpus: int, stages: int, schedule: str, micros: int, chunks: int = 1, layers: int = 8) -> Case:
    """Stages of `torch.distributed.pipelining` with FSDP2."""
    sequence = 4096 if size == "8b" else 512
    words = f"--size {size} --layers {layers} --stages {stages} --chunks {chunks} --schedule {schedule} "
    words += f"--micro-batches {micros} --sequence {sequence}"
    plan = {
        "sequence": sequence,
        "micro_batch": 1,
        "pipeline": stages,
        "virtual": chunks,
        "schedule": _SCHEDULES[schedule],
        "global_batch": micros * gpus // stages,
        "reshard": True,
    }
    config = {**_SIZES[size], "num_hidden_layers": layers, "tie_word_embeddings": False, "rope_scaling": None}
    name = f"{size}-{gpus} {stages}x{chunks} {schedule} {micros} micro-batches, {layers} layers"
    return Case(name, "torch pipelining + FSDP2", PIPELINE, words, gpus, "llama3-8b", config, said=plan)


MEGATRON = "validation/recipes/megatron_gpt.py"
_SHAPES = "--hidden 4096 --ffn 14336 --heads 32 --kv-heads 8 --vocab 32000 --sequence 4096 --batch 1"


def _megatron(gpus: int, micros: int, words: str, said: Mapping[str, Any] = NONE, layers: int = 8) -> Case:
    """A Llama of Megatron-core's local layers, split with `--tensor-parallel` including the vocabulary."""
    name = f"llama-{layers}-h100-sxm-{gpus} {micros} micro-batches {words}".strip()
    split = {"vocabulary_parallel": True} if "--tensor-parallel" in words else {}
    line = f"--layers {layers} {_SHAPES} --accumulate {micros} {words}"
    return Case(name, "Megatron-core", MEGATRON, line, gpus, "composed_models:megatron_llama", said={**split, **said})


TITAN = "validation/recipes/llama_fsdp2.py"


def _titan(gpus: int, words: str, said: Mapping[str, Any] = NONE) -> Case:
    """Plain modules trained like in torchtitan: DTensor with sequence parallelism and a parallel loss, FSDP2."""
    name = f"llama-4-h100-sxm-{gpus} {words}"
    shapes = "--layers 4 --hidden 4096 --ffn 14336 --heads 32 --kv-heads 8 --vocab 128256"
    family = "torchtitan's order + TP + SP" if "--tensor" in words else "torchtitan's order, FSDP2"
    family = "torchao's float8, FSDP2" if "--float8" in words else family
    model = "titan_float8_llama" if "--float8" in words else "titan_llama"
    return Case(name, family, TITAN, f"{shapes} {words}", gpus, f"composed_models:{model}", said=said)


TRAINER = "validation/recipes/torchtitan_trainer.py"


def _trainer(gpus: int, words: str, said: Mapping[str, Any]) -> Case:
    """torchtitan's own trainer, and its own Llama with another kernel of attention."""
    name = f"llama-4-h100-sxm-{gpus} {words}"
    line = f"--family llama3 --shapes 4,4096,14336,32,8,128256 {words}"
    fixed = {"tensor": 1, "sequence_parallel": False, "vocabulary_parallel": False}
    fixed |= {"separate_ends": True, "keep_last": True}
    family = "torchtitan's trainer + CP"
    return Case(name, family, TRAINER, line, gpus, "composed_models:titan_trainer_llama", said={**fixed, **said})


def _experts(gpus: int, words: str, said: Mapping[str, Any]) -> Case:
    """torchtitan's own trainer with its own mixture of experts, and another kernel of attention."""
    name = f"qwen3-30b-a3b-4-h100-sxm-{gpus} {words}"
    line = f"--family qwen3 --flavor 30B-A3B --layers 4 --even {words}"
    family = "torchtitan's trainer + EP"
    fixed = {"tensor": 1, "separate_ends": True, "keep_last": True, **said}
    return Case(name, family, TRAINER, line, gpus, "composed_models:titan_trainer_experts", said=fixed)


def _graph_trainer(gpus: int, words: str, said: Mapping[str, Any]) -> Case:
    """torchtitan's GraphTrainer, which gathers parameters by passes over one graph of the whole step."""
    name = f"llama-4-h100-sxm-{gpus} {words}"
    line = f"--family llama3 --shapes 4,4096,14336,32,8,128256 --traced {words}"
    fixed = {"tensor": 1, "data_style": "fsdp2", "micro_batch": 1, "separate_ends": True}
    family = "torchtitan's GraphTrainer"
    return Case(name, family, TRAINER, line, gpus, "composed_models:titan_trainer_llama", said={**fixed, **said})


_ZERO1 = "--distributed-optimizer --overlap"
CASES = (
    _hf("llama3-8b", 8, 8, "--sequence 4096"),
    _hf("llama3-70b", 4, 64, "--sequence 4096"),
    _hf("llama3-1b", 16, 8, "--sequence 4096 --batch 2"),
    _hf("qwen3-0.6b", 8, 8, "--sequence 2048 --batch 4"),
    _hf("gpt2-xl", 6, 8, "--sequence 1024 --batch 4"),
    _hf("mistral-7b", 4, 16, "--sequence 8192"),
    _hf("qwen3-30b-a3b", 4, 16, "--sequence 4096"),
    _hf("mixtral-8x7b", 2, 16, "--sequence 4096"),
    _hf("deepseek-v3", 4, 64, "--sequence 2048", "h200"),
    _hf("llama3-8b", 4, 16, "--sequence 4096 --batch 2", "a100-80gb-sxm"),
    _hf("llama3-8b", 4, 16, "--sequence 8192 --checkpoint"),
    _hf("gpt2-xl", 4, 16, "--sequence 1024 --batch 2"),
    _hf("llama3-8b", 2, 8, "--sequence 4096 --accumulate 3"),
    _hf("llama3-8b", 2, 8, "--sequence 4096 --keep"),
    _hf("mistral-7b", 2, 8, "--sequence 4096 --keep --accumulate 2"),
    _hf("mixtral-8x7b", 2, 16, "--sequence 4096 --checkpoint --accumulate 2"),
    _hybrid("llama3-8b", 2, 16, "--sequence 4096 --shard 8"),
    _hybrid("llama3-8b", 2, 32, "--sequence 4096 --shard 4 --accumulate 2"),
    _hybrid("qwen3-30b-a3b", 2, 32, "--sequence 4096 --shard 8 --checkpoint"),
    _hybrid("mistral-7b", 4, 64, "--sequence 8192 --shard 16 --checkpoint"),
    _ddp("llama3-8b", 2, 8, "--sequence 4096"),
    _ddp("llama3-8b", 2, 8, "--sequence 4096 --accumulate 3"),
    _ddp("qwen3-0.6b", 8, 16, "--sequence 2048 --batch 4"),
    _ddp("llama3-1b", 8, 8, "--sequence 8192 --checkpoint"),
    _ddp("mistral-7b", 2, 16, "--sequence 4096 --checkpoint --accumulate 2"),
    _tensor("llama3-8b", 2, 8, "--sequence 4096 --tensor 4"),
    _tensor("llama3-70b", 2, 16, "--sequence 4096 --tensor 8"),
    _tensor("llama3-8b", 4, 8, "--sequence 8192 --tensor 2 --checkpoint"),
    _tensor("mistral-7b", 2, 16, "--sequence 8192 --tensor 4 --accumulate 2"),
    _tensor("llama3-8b", 4, 32, "--sequence 8192 --tensor 4 --keep"),
    _titan(8, "--sequence 4096 --batch 1"),
    _titan(16, "--sequence 8192 --batch 1 --checkpoint full"),
    _titan(8, "--sequence 4096 --batch 2 --accumulate 2"),
    _titan(16, "--sequence 8192 --batch 2 --tensor-parallel 4"),
    _titan(32, "--sequence 8192 --batch 4 --tensor-parallel 8"),
    _titan(16, "--sequence 8192 --batch 2 --tensor-parallel 2 --checkpoint full"),
    _titan(16, "--sequence 8192 --batch 1 --tensor-parallel 4 --accumulate 2"),
    _titan(8, "--sequence 8192 --batch 2 --tensor-parallel 2 --accumulate 2"),
    _titan(8, "--sequence 4096 --batch 1 --float8 rowwise"),
    _titan(16, "--sequence 8192 --batch 1 --checkpoint full --float8 rowwise", {"recompute_whole": True}),
    _trainer(
        16,
        "--sequence 8192 --batch 1 --context-parallel 2",
        {"sequence": 8192, "micro_batch": 1, "context": 2},
    ),
    _trainer(
        16,
        "--sequence 16384 --batch 1 --context-parallel 4 --checkpoint full",
        {"sequence": 16384, "micro_batch": 1, "context": 4, "recompute": "full", "recompute_whole": True},
    ),
    _experts(
        16,
        "--sequence 4096 --batch 1 --expert-parallel 8",
        {"sequence": 4096, "micro_batch": 1, "expert": 8},
    ),
    _experts(
        16,
        "--sequence 4096 --batch 2 --expert-parallel 4 --checkpoint full",
        {"sequence": 4096, "micro_batch": 2, "expert": 4, "recompute": "full", "recompute_whole": True},
    ),
    _graph_trainer(8, "--sequence 4096 --batch 1", {"sequence": 4096, "passes": ("recompute-selective",)}),
    _graph_trainer(
        16,
        "--sequence 8192 --batch 1 --checkpoint full",
        {"sequence": 8192, "recompute": "full", "recompute_whole": True},
    ),
    _megatron(8, 4, _ZERO1),
    _megatron(8, 2, f"--tensor-parallel 2 {_ZERO1}"),
    _megatron(16, 4, f"--tensor-parallel 4 --sequence-parallel {_ZERO1}"),
    _megatron(16, 4, f"--tensor-parallel 2 --sequence-parallel {_ZERO1} --checkpoint"),
    _megatron(8, 4, "--distributed-optimizer", {"overlap": False}),
    _megatron(16, 2, f"--tensor-parallel 8 --sequence-parallel {_ZERO1}"),
    _megatron(16, 4, f"--checkpoint {_ZERO1}"),
    _megatron(16, 8, f"--pipeline-parallel 2 {_ZERO1}", {"pipeline": 2, "schedule": "1f1b"}),
    _megatron(16, 8, f"--pipeline-parallel 4 --tensor-parallel 2 --sequence-parallel {_ZERO1}", {"pipeline": 4}),
    _megatron(16, 8, f"--pipeline-parallel 4 --virtual-pipeline 2 {_ZERO1}", {"pipeline": 4, "virtual": 2}),
    _pipeline("8b", 16, 4, "1F1B", 8),
    _pipeline("8b", 16, 4, "GPipe", 8),
    _pipeline("8b", 16, 4, "Interleaved1F1B", 8, 2),
    _pipeline("8b", 16, 4, "InterleavedZeroBubble", 8, 2),
    _pipeline("8b", 8, 2, "1F1B", 6),
    _pipeline("8b", 8, 2, "Interleaved1F1B", 4, 4),
    _pipeline("small", 4, 2, "1F1B", 4),
    _pipeline("8b", 16, 4, "DualPipeV", 8, 2),
    _pipeline("8b", 8, 2, "DualPipeV", 6, 2),
)

_NOT_FITTED = (
    "torchao's float8, FSDP2",
    "torchtitan's trainer + CP",
    "torchtitan's trainer + EP",
    "torchtitan's GraphTrainer",
)  # families without launch times of their own
WHY = {  # names of differences that stay
    "Megatron-core": "Memory: compiled functions and Python frames of Megatron's loss hold logits and copies of them "
    "longer than their last use, at most 5 %; reserved memory also has what building the model left.",
    "torchtitan's order + TP + SP": "Memory: composed keeps what was gathered for gradients of weights a little longer "
    "than autograd does.",
    "torch pipelining + FSDP2": "Interleaved schedules of more than three stages a rank free and gather parameters "
    "between passes (`_add_unshard_reshard`); composed keeps all of them gathered.",
    "torchao's float8, FSDP2": "The graph is taken from torchao's own layers, in eager mode: 14 memory-bound kernels "
    "for each operand and its scales. Its functions save tensors when they end, so whole blocks are recomputed.",
    "torchtitan's trainer + CP": "The graph is taken from torchtitan's own Llama, with FlexAttention's price. Work: "
    "ranks add up their numbers of tokens, 8 bytes.",
    "torchtitan's trainer + EP": "The graph is taken from torchtitan's own Qwen 3, with FlexAttention's price. Work: "
    "torchtitan sums norms of gradients over all ranks at once, tokens of a step, and of each expert. Step time: the "
    "capture's host runs more and slower launches: tokens are dealt in turn, and sums are deterministic, by sorting.",
    "torchtitan's GraphTrainer": "One compiled graph of the whole step (`graph_trainer`), whose passes place the "
    "gathers; its default recomputes what is memory-bound. Work: it does not gather the embedding again for its "
    "gradient, gathers the last norm by itself, drops what is recomputed and not read, and adds up numbers of tokens. "
    "Memory: the graph frees each tensor after its last use.",
    "HF + FSDP2": "GPT-2 waits for its host, whose time differs between captures on a shared machine.",
}


def fitted(case: Case) -> bool:
    """Whether `composed_hosts.py` uses the case for launch times: the first of the two cases of a family."""
    if case.family in _NOT_FITTED or "DualPipeV" in case.name:
        return False
    return [one for one in CASES if one.family == case.family].index(case) % 2 == 0
