"""Plans of AutoModel's dense models and of torchtune's runs, which torchtitan's trainer does in their place.

All three put models of their own on the same parts of PyTorch: FSDP2, DTensor, its pipelines, checkpointing by layer.
What the rows leave to recipes is from those: ``examples/llm_benchmark`` of AutoModel, ``recipes/configs`` of torchtune.
"""

from __future__ import annotations

import dataclasses
import re

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.models import plain_name
from presim_study.plan import Plan, accumulation, checkpointing, cluster_of, repeats_for
from presim_study.plans.automodel_experts import plan_experts
from presim_study.plans.trainer import LLAMAS, Model, Trainer, batch_of, model_of, plan_trainer

_QWEN = Model("llama3", shapes="64,5120,27648,40,8,152064")  # Qwen2.5 without the biases of its queries
_MODELS = {
    **LLAMAS,
    "llama323b": Model("llama3", "3B"),
    "llama370b2node": Model("llama3", "70B"),
    "qwen2532b": _QWEN,
    "qwen2532b2node": _QWEN,
}
_LAYERS = {"8B": 32, "3B": 28, "70B": 80, None: 64}  # by flavor
_EXPERTS = ("moe", "a3b", "a22b", "gptoss", "deepseek", "mixtral", "kimi", "nemotron3", "glm", "moonlight")


def plan_automodel(case: Case) -> Plan:
    """AutoModel's benchmarks: weights in bf16, adapters on all layers of dense models.

    Raises:
        CannotBuildError: another model.
    """
    if any(word in plain_name(case) for word in _EXPERTS):
        return plan_experts(case)
    model = model_of(case, _MODELS)
    cluster = cluster_of(case)
    stages, split = case.count("pp", 1), case.count("tp", 1)
    batch = batch_of(case)
    replicas = cluster.world_size // (stages * split * case.count("cp", 1))
    step = accumulation(Case({**case.row, "micro_batch": str(batch)}), replicas)
    repeats = repeats_for(step, 1)
    alone = cluster.world_size == 1  # its recipe of one GPU computes nothing again
    trainer = Trainer(
        sequence=case.count("seq_len"),
        batch=batch,
        microbatch=case.count("micro_batch") if stages > 1 else None,
        accumulate=f"1,{repeats.first},{repeats.second}" if repeats else step,
        tensor_parallel=split,
        pipeline_parallel=stages,
        context_parallel=case.count("cp", 1),
        dtype="bfloat16",
        lora=16 if "[lora]" in case.text("model").lower() else None,
        checkpoint="none" if alone else "full",
        compile=stages == 1,  # which puts together what Transformer Engine's kernels do there
        async_tensor_parallel=split > 1 and stages == 1,
    )
    return plan_trainer(model, _staged(trainer, case, _LAYERS[model.flavor]), cluster, repeats)


def plan_torchtune(case: Case) -> Plan:
    """torchtune's recipes: weights in bf16, the loss in pieces, adapters of rank 8 (16 for 70B).

    Raises:
        CannotBuildError: another model, weights in four bits, or a flag that the recipe has not.
    """
    model = model_of(case, _MODELS)
    name = case.text("model").lower()
    if "[qlora]" in name:
        raise CannotBuildError("the recipe has no weights in four bits")
    rank = 16 if model.flavor == "70B" else 8
    flags = _flags(case)
    if lacking := next((flag for flag in _LACKING if flag in flags), None):
        raise CannotBuildError(f"the recipe lacks what torchtune's row has: {lacking}")
    trainer = Trainer(
        sequence=case.count("seq_len"),
        batch=case.count("micro_batch"),
        dtype="bfloat16",
        lora=rank if "lora" in name else None,
        checkpoint="full" if case.text("act_ckpt").startswith("recipe") else checkpointing(case),
        chunked_loss=not flags or "chunked cross entropy" in flags,
        compile=case.is_on("compile"),
        offload="cpu offload" in case.text("other").lower(),
    )
    return plan_trainer(model, trainer, cluster_of(case))


# Those of its table of optimization flags, each with all before it; the last two have adapters in place of all weights.
_FLAGS = (
    *("baseline", "packed dataset", "compile", "chunked cross entropy", "activation checkpointing"),
    *("fuse optimizer step into backward", "activation offloading", "8-bit adamw", "lora", "qlora"),
)
_LACKING = _FLAGS[5:8]


def _flags(case: Case) -> tuple[str, ...]:
    """The flags of a row of that table, but for what adapters make of it; none where it is of another."""
    said = re.search(r"flags up to: *\+? *([^;]+)", case.text("other").lower())
    if said is None:
        return ()
    last = next((index for index, flag in enumerate(_FLAGS) if said[1].startswith(flag)), None)
    if last is None:
        raise CannotBuildError(f"torchtune's flag {said[1].strip()!r} is not known here")
    if last == 0:
        raise CannotBuildError("the samples of torchtune's baseline are not packed: their lengths are not given")
    return _FLAGS[: last + 1] if last < 8 else (*_FLAGS[:5], _FLAGS[last])


def _staged(trainer: Trainer, case: Case, layers: int) -> Trainer:
    """With how layers go to virtual stages: in equal numbers, but for what the ends have fewer."""
    stages, virtual = case.count("pp", 1), case.count("vp", 1)
    if stages == 1:
        return trainer
    count = stages * virtual
    each = -(-layers // count)
    spare = each * count - layers
    if spare > each:
        raise CannotBuildError(f"{layers} layers do not go to {count} stages in equal numbers")
    return dataclasses.replace(
        trainer,
        schedule="Interleaved1F1B" if virtual > 1 else "1F1B",
        layers_per_stage=each,
        ends_count_as=f"{spare // 2},{spare - spare // 2}",
    )
