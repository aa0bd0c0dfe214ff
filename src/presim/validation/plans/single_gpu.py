"""Plans of single models on one GPU: language models, encoders, vision."""

from __future__ import annotations

from presim.validation.cases import CannotBuildError, Case
from presim.validation.plan import Plan, checkpointing, cluster_of, only_one, options

_MODELS = {  # the model's published name -> its name in the recipe, whether it reads images
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


def plan_single_gpu(case: Case) -> Plan:
    """A model of Transformers in a plain loop.

    Raises:
        CannotBuildError: another model or precision, or several GPUs.
    """
    only_one(case, "tp", "pp", "cp", "ep", "n_gpus")
    name = case.text("model").lower()
    if name not in _MODELS:
        raise CannotBuildError(f"the recipe has no model {case.text('model')!r}")
    model, images = _MODELS[name]
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
