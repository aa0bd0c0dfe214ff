"""Which recipe builds which case: one planner a family of frameworks, found by the words of the case."""

from __future__ import annotations

import importlib.util

from presim.validation.borrowed import plan_automodel, plan_torchtune
from presim.validation.cases import CannotBuildError, Case
from presim.validation.litgpt import plan_litgpt
from presim.validation.megatron import plan_megatron
from presim.validation.plan import (
    Plan,
    Planner,
    accumulation,
    checkpointing,
    cluster_of,
    decoder_shapes,
    only_one,
    options,
    steps_for,
)
from presim.validation.torchtitan import plan_torchtitan


def plan(case: Case) -> Plan:
    """The plan of a case.

    Raises:
        CannotBuildError: no recipe fits, or the case lacks what its recipe needs.
    """
    framework = case.text("framework").lower()
    for words, planner in _PLANNERS:
        if any(word in framework for word in words):
            return planner(case)
    raise CannotBuildError(f"no recipe for the framework {case.text('framework')!r}")


def _mosaic(case: Case) -> Plan:
    only_one(case, "tp", "pp", "cp", "ep")
    in_fp8 = "fp8" in case.text("precision").lower()
    if in_fp8 and importlib.util.find_spec("transformer_engine") is None:
        raise CannotBuildError("the case has FP8, which its layers compute with Transformer Engine: not installed")
    cluster = cluster_of(case)
    micro_batches = accumulation(case, cluster.world_size)
    shapes = decoder_shapes(case)
    del shapes["kv_heads"]
    return Plan(
        "mpt_fsdp1.py",
        options(
            **shapes,
            sequence=case.count("seq_len"),
            batch=case.count("micro_batch"),
            accumulate=micro_batches,
            checkpoint=checkpointing(case) == "full",
            fp8=in_fp8,
            sharding="grad" if "SHARD_GRAD_OP" in case.text("sharding") else "full",
            mixed_precision="pure" if "PURE" in case.text("sharding") else "default",
        ),
        cluster,
        steps=steps_for(micro_batches),
    )


_SINGLE = {  # the model's published name -> its name in the recipe, whether it reads images
    "gemma 2 2b": ("gemma2-2b", False),
    "llama 3.2 1b": ("llama3.2-1b", False),
    "clip vit-l/14 336": ("clip-vit-l14-336", True),
    "vit-h/14": ("vit-h14", True),
    "convnextv2 huge": ("convnextv2-huge", True),
    "gpt-2 large": ("gpt2-large", False),
    "t5 large": ("t5-large", False),
    "gpt2_large": ("gpt2-large", False),
    "gpt3_xl": ("gpt3-xl", False),
    "bert_large": ("bert-large", False),
    "opt_13": ("opt-1.3b", False),
}
_PRECISIONS = {"fp": "full", "fp32": "full", "mp": "mixed", "hp": "half", "bf16": "half", "amp_bf16": "mixed"}


def _single_gpu(case: Case) -> Plan:
    only_one(case, "tp", "pp", "cp", "ep", "n_gpus")
    name = case.text("model").lower()
    if name not in _SINGLE:
        raise CannotBuildError(f"the recipe has no model {case.text('model')!r}")
    model, images = _SINGLE[name]
    precision = _PRECISIONS.get(case.text("precision").split(" ")[0].lower())
    if precision is None:
        raise CannotBuildError(f"the recipe has no precision {case.text('precision')!r}")
    size = case.count("seq_len")
    return Plan(
        "single_gpu.py",
        options(
            model=model,
            batch=case.count("micro_batch"),
            sequence=20 if model.startswith("clip") else 0 if images else size,
            image=size if images else 0,
            precision=precision,
            checkpoint=checkpointing(case) == "full",
            attention="eager" if "eager attention" in case.text("framework") else None,
            optimizer="none" if "no optimizer" in case.text("note") else None,
        ),
        cluster_of(case),
    )


_PLANNERS: tuple[tuple[tuple[str, ...], Planner], ...] = (
    (("torchtitan",), plan_torchtitan),
    (("llm-foundry", "composer"), _mosaic),
    (("automodel",), plan_automodel),
    (("torchtune",), plan_torchtune),
    (("litgpt", "lit-gpt"), plan_litgpt),
    (("megatron", "nemo", "nvidia release", "ngc", "nvidia pytorch"), plan_megatron),
    (("hf transformers", "hugging face"), _single_gpu),
)
