"""Plans of single models on one GPU: language models, encoders, vision; LoRA of decoders."""

from __future__ import annotations

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study import dense_models
from presim_study.models import plain_name, published_key
from presim_study.plan import (
    Plan,
    accumulation,
    checkpointing,
    cluster_of,
    decoder_shapes,
    needs_installed,
    only_one,
    options,
    steps_for,
)
from presim_study.plans.adapters import adapters_of

_MODELS = {  # the model's name in small letters and digits -> its name in the recipe, whether it reads images
    "gemma2b": ("gemma-2b", False),
    "gemma22b": ("gemma2-2b", False),
    "llama321b": ("llama3.2-1b", False),
    "clipvitl14336": ("clip-vit-l14-336", True),
    "vitb16": ("vit-b16", True),
    "vitl16": ("vit-l16", True),
    "vith14": ("vit-h14", True),
    "convnextv2huge": ("convnextv2-huge", True),
    "gpt2": ("gpt2", False),
    "gpt2small": ("gpt2", False),
    "gpt215b": ("gpt2-xl", False),
    "gpt2medium": ("gpt2-medium", False),
    "gpt2large": ("gpt2-large", False),
    "gpt2xl": ("gpt2-xl", False),
    "t5base": ("t5-base", False),
    "t5large": ("t5-large", False),
    "t53b": ("t5-3b", False),
    "gpt3xl": ("gpt3-xl", False),
    "gpt327b": ("gpt3-2.7b", False),
    "gpt327": ("gpt3-2.7b", False),  # NeuSight leaves the B of billions out
    "bertbase": ("bert-base", False),
    "bertlarge": ("bert-large", False),
    "opt13": ("opt-1.3b", False),
    "opt13b": ("opt-1.3b", False),
    "opt27": ("opt-2.7b", False),
    "opt27b": ("opt-2.7b", False),
    "opt67": ("opt-6.7b", False),
    "opt67b": ("opt-6.7b", False),
}
_DECODERS = ("gemma", "llama", "gpt", "opt")  # how the recipe's names of decoders begin, but for those of given sizes
_SHAPED = {"llama": dense_models.LLAMAS, "qwen2": dense_models.QWENS, "qwen3": dense_models.QWEN3S}
_PRECISIONS = {
    "fp16": "fp16",
    "tf32": "tf32",
    "fp": "full",
    "fp32": "full",
    "mp": "mixed",
    "hp": "half",
    "bf16": "half",
    "amp_bf16": "mixed",
}


def plan_single_gpu(case: Case) -> Plan:
    """A model of Transformers in a plain loop; with adapters or several micro-batches a step, one that tunes it.

    Raises:
        CannotBuildError: another model, precision or kind of adapters, or several GPUs.
    """
    only_one(case, "tp", "pp", "cp", "ep", "n_gpus")
    model, images, shapes = _model_of(case)
    if "mode=inf" in case.text("note"):
        raise CannotBuildError("the case's step has no backward pass, and the recipe trains")
    precision = _PRECISIONS.get(case.precision().split(" ")[0])
    adapters = adapters_of(case)
    if precision is None:
        raise CannotBuildError(f"the recipe has no precision {case.text('precision')!r}")
    if adapters and not (shapes or model.startswith(_DECODERS)):
        raise CannotBuildError(f"the recipe puts adapters on decoders, and {case.text('model')!r} is none")
    size = case.count("seq_len")
    plain = options(
        model=model,
        shapes=shapes,
        batch=case.count("micro_batch"),
        sequence=20 if model.startswith("clip") else 0 if images else size,
        image=size if images else 0,
        precision=precision,
        checkpoint=checkpointing(case) == "full",
        attention="eager" if "eager attention" in case.text("framework") else None,
        optimizer="none" if "no optimizer" in case.text("note") else None,
    )
    micro_batches = accumulation(case, 1)
    tuning = adapters.options() if adapters else ()
    tuning += options(accumulate=micro_batches if micro_batches > 1 else None)
    if not tuning:
        return Plan("single_gpu.py", plain, cluster_of(case))
    needs_installed("peft")
    return Plan("single_gpu_finetune.py", plain + tuning, cluster_of(case), steps=steps_for(micro_batches))


def decoder_of(case: Case) -> tuple[str, str | None]:
    """A decoder's name in the recipe, and its sizes where the recipe has none by that name.

    Raises:
        CannotBuildError: the recipe has no such model, or none that is a decoder.
    """
    model, _, shapes = _model_of(case)
    if not (shapes or model.startswith(_DECODERS)):
        raise CannotBuildError(f"the recipe trains decoders, and {case.text('model')!r} is none")
    return model, shapes


def _model_of(case: Case) -> tuple[str, bool, str | None]:
    """Its name in the recipe, whether it reads images, the sizes of one that the recipe has none of."""
    name = plain_name(case).replace("/", "")
    if name in _MODELS:
        return *_MODELS[name], None
    for family, sizes in _SHAPED.items():
        if (key := published_key(case) or "") in sizes:
            return family, False, ",".join(map(str, sizes[key]))
    if name.startswith("llama") and case.text("n_layers"):
        return "llama", False, ",".join(map(str, decoder_shapes(case).values()))
    raise CannotBuildError(f"the recipe has no model {case.text('model')!r}")
