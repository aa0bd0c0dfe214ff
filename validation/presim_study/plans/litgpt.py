"""Plans of litgpt's fine-tuning: LoRA and adapters on one GPU, or on several by FSDP."""

from __future__ import annotations

import re

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.plan import Plan, cluster_of, needs_installed, only_one, options

_MODELS = {  # as its tables write them -> as its configurations are called
    "phi-1.5 1.3 b": "phi-1_5",
    "phi-2 2.7 b": "phi-2",
    "stablelm alpha 3 b": "stablelm-base-alpha-3b",
    "stablelm alpha 7 b": "stablelm-base-alpha-7b",
    "llama 2 7 b": "Llama-2-7b-hf",
    "llama 2 13 b": "Llama-2-13b-hf",
    "llama 2 70 b": "Llama-2-70b-hf",
    "llama 3 8 b": "Llama-3-8B",
    "llama 3.1 8 b": "Llama-3.1-8B",
    "llama 3.2 1 b": "Llama-3.2-1B",
    "codellama 7 b": "CodeLlama-7b-hf",
    "codellama 13 b": "CodeLlama-13b-hf",
    "codellama 34 b": "CodeLlama-34b-hf",
    "mistral 7 b": "Mistral-7B-v0.1",
    "gemma 2 b": "Gemma-2b",
    "gemma 7 b": "Gemma-7b",
    "pythia 1 b": "pythia-1b",
    "pythia 2.8 b": "pythia-2.8b",
    "tinyllama 1.1 b": "tiny-llama-1.1b",
    "falcon 7 b": "falcon-7b",
    "falcon 40 b": "falcon-40b",
    "falcon 180 b": "falcon-180B",
}
_METHODS = ("lora", "adapter", "adapter_v2")


def plan_litgpt(case: Case) -> Plan:
    """Its tables give the longest sample's length, which memory goes by; the time is that of others.

    Raises:
        CannotBuildError: another model, method or precision; litgpt or what it needs is not installed.
    """
    only_one(case, "tp", "pp", "cp", "ep")
    if case.number("step_time_s") is not None and "LONGEST" in case.text("note"):
        raise CannotBuildError("the step time is that of samples whose lengths are not given, but for the longest")
    name, method = _model_and_method(case)
    needs_installed("litgpt")
    quantized = re.search(r"bnb\.(\S+)", case.text("precision"))
    if not case.text("precision").startswith("bf16-true"):
        raise CannotBuildError(f"the recipe computes in bf16-true, and the case in {case.text('precision')!r}")
    if quantized:
        needs_installed("bitsandbytes")
    cluster = cluster_of(case)
    several = cluster.world_size > 1
    total, micro = case.count("global_batch", 0), case.count("micro_batch")
    return Plan(
        "litgpt_finetune.py",
        options(
            model=name,
            method=method,
            sequence=case.count("seq_len"),
            batch=micro,
            # memory is the same from the second micro-batch on
            accumulate=2 if total > micro * cluster.world_size else None,
            quantize=quantized[1] if quantized else None,
            gpus=cluster.world_size if several else None,
            gpus_per_node=cluster.gpus_per_node if several else None,
        ),
        cluster,
        steps=2,
    )


def _model_and_method(case: Case) -> tuple[str, str]:
    """From ``phi-1.5 1.3 B [lora]``."""
    said = re.fullmatch(r"(.+?) *\[(.+)\]", case.text("model").lower())
    if said is None or said[1] not in _MODELS or said[2] not in _METHODS:
        raise CannotBuildError(f"the recipe has no model {case.text('model')!r}")
    return _MODELS[said[1]], said[2]
