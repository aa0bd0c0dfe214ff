"""What Megatron's configuration makes of a case: number formats, layers of stages, whose layers they are."""

from __future__ import annotations

import importlib.util
import re

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family import tuned, tuned_experts
from presim_study.megatron_family.finetuning import adapters
from presim_study.megatron_family.flags import flags_of
from presim_study.models import plain_name
from presim_study.named_models import Shapes


def is_sharded(case: Case) -> bool:
    """Megatron's own FSDP; PyTorch's is another."""
    said = case.text("sharding").lower()
    if "torch" in said and "fsdp" in said:
        raise CannotBuildError("the recipe has Megatron's own FSDP, and the case PyTorch's")
    return "fsdp" in said


def shares_optimizer(case: Case) -> bool:
    """Megatron's distributed optimizer, which is ZeRO's first stage.

    Raises:
        CannotBuildError: a later stage.
    """
    said = case.text("sharding").lower()
    stage = re.search(r"zero[- ]?(?:stage[- ]?)?([123])", said)
    if stage and stage[1] != "1":
        raise CannotBuildError(f"Megatron's optimizer has ZeRO's first stage, and the case {case.text('sharding')!r}")
    return "distributed" in said or stage is not None


def split_of_layers(shapes: Shapes, stages: int) -> dict[str, object]:
    """How layers go to pipeline stages that they do not fill evenly; none where they do."""
    predictors = int(str(shapes.fields.get("mtp_num_layers", 0)))
    if stages == 1 or (shapes.layers % stages == 0 and not predictors):
        return {}
    if (shapes.layers + 2) % stages == 0 and not predictors:
        return {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
    return {"pipeline_model_parallel_layout": tuned.pipeline_layout(shapes.layers, stages, predictors)}


def engine_of(case: Case) -> str:
    """Transformer Engine where the case used it or needs it.

    Raises:
        CannotBuildError: it is not installed here.
    """
    used = flags_of(case).get("transformer-impl") == "transformer_engine" or "TE" in case.text("framework")
    needs = {
        "FP8": _fp8(case),
        "context parallelism": case.count("cp", 1) > 1,
        "experts": case.text("n_experts") not in ("", "0", "1") or case.count("ep", 1) > 1,
        "its layers": used or tuned.is_tuned(case),
    }
    needed = next((name for name, needed in needs.items() if needed), None)
    if needed and importlib.util.find_spec("transformer_engine") is None:
        raise CannotBuildError(f"the case has {needed} by Transformer Engine, which is not installed: make frameworks")
    return "te" if needed else "local"


def _fp8(case: Case) -> bool:
    return any(name in case.precision() for name in ("fp8", "fp4"))


def number_format(case: Case, gpu: str) -> dict[str, object]:
    """Fields of TransformerConfig for what the products compute in."""
    text = case.precision()
    if " or " in text:
        raise CannotBuildError(f"precision = {case.text('precision')!r} does not say which")
    if "fp4" in text:
        return {"fp4": "e2m1", "fp4_recipe": "nvfp4"}
    if "fp8" not in text:
        plain_precision(case)
        return {}
    recipe = flags_of(case).get("fp8-recipe") or _fp8_recipe(case, text, gpu)
    return {
        "fp8": "e4m3" if recipe in ("mxfp8", "blockwise") else "hybrid",
        "fp8_recipe": recipe,
        "fp8_param": (_gathers_fp8(case) and recipe in ("delayed", "tensorwise")) or keeps_mxfp8_alone(case, gpu),
    }


def _gathers_fp8(case: Case) -> bool:
    return tuned.is_tuned(case) or flags_of(case).get("fp8-param-gather") == "True"


_FULL = {  # model -> GPUs
    "llama31405b": ("gb300",),
    "llama370b": ("gb300",),
    "nemotron3super": ("b200",),
}
_FULL_WITH_TWO = ("llama370b", "deepseekv3")  # with two sequences at a time, on any GPU


def keeps_mxfp8_alone(case: Case, gpu: str) -> bool:
    """Weights in MXFP8 have none in bf16 beside them, which would not fit.

    So it is wherever Bridge trains in MXFP8 (its ``bf16_with_mxfp8_mixed``). Where there is room for both, the recipe
    keeps both: its step takes as long (Llama 3 8B on GB200: 0.2 % less), and its memory is the larger for it.
    """
    name = plain_name(case)
    full = gpu in _FULL.get(name, ()) or (name in _FULL_WITH_TWO and case.count("micro_batch", 1) > 1)
    in_blocks = "mx" in case.text("precision").lower() and not gpu.startswith("h")
    apart = tuned_experts.fuses_experts(case, gpu) or adapters(case)  # with a recipe of its own, or not trained
    return "Bridge" in case.text("framework") and in_blocks and full and not apart


def is_half(case: Case) -> bool:
    """In fp16, where Megatron sums gradients in fp16 too; in bf16 it sums in fp32 unless it is told otherwise."""
    return plain_precision(case) == "fp16"


def plain_precision(case: Case) -> str:
    """What is not multiplied in 8 or 4 bits is computed in."""
    text = case.precision()
    said = next((name for name in ("bf16", "fp16", "fp32") if name in text), None)
    if said is None and not _fp8(case):
        raise CannotBuildError(
            f"the recipe computes in bf16, fp16, fp32 or FP8, and the case in {case.text('precision')!r}"
        )
    return said or "bf16"


def is_deepspeed_s(case: Case) -> bool:
    """Trained with Megatron-DeepSpeed, a fork of Megatron-LM from before it had newer attention and layers."""
    return "deepspeed" in case.text("framework").lower()


def attention_of(case: Case, engine: str) -> str | None:
    """The backend that the case names; Megatron's own layers have the unfused one only."""
    said = flags_of(case)
    named = said.get("attention-backend")
    old = is_deepspeed_s(case) or "accelerate" in case.text("framework") or _before_flash(case)
    if old or said.get("transformer-impl") == "local" or named == "local":
        return "unfused"
    return named if engine == "te" else None


def _before_flash(case: Case) -> bool:
    """Of Megatron-LM before it had FlashAttention, which came in 2023: Narayanan's and Korthikanti's papers."""
    said = f"{case.text('framework')} {case.text('source')}".lower()
    papers = ("sc21", "narayanan", "korthikanti", "2205.05198")
    return "" < case.text("date") < "2023" or any(word in said for word in papers)


def recomputes_layers(case: Case) -> bool:
    """Whether every layer is computed again, as the case says.

    vTrain's rows on one node were not, though its table has it: both are from its simulator,
    which computes nothing again without a pipeline (VIA-Research/vTrain f8dda84, src/predictor.py), and a layer of a
    run with one takes the same time. Its runs on more nodes do not fit without.
    """
    said = case.text("act_ckpt").lower()
    return said.startswith(
        ("full", "uniform", "every layer", "true", "yes")
    ) and "ground_truth_single" not in case.text("source")


def masks_attention(case: Case) -> bool:
    """Run by Megatron-LM's own script, whose data loader makes a mask unless it is told not to."""
    by_script = case.text("framework").startswith("Megatron-LM") and "transformer-impl" in case.text("other")
    return by_script and "no_create_attention_mask" not in case.text("model")


def _fp8_recipe(case: Case, text: str, gpu: str) -> str:
    """How the products are scaled: Bridge's plain "FP8" by the tensor's current values, others' by earlier ones."""
    words = re.split(r"[^a-z0-9]+", text)
    if "mx" in text and not gpu.startswith("h"):
        return "mxfp8"
    if "mx" in text or "sc" in words or "subchannel" in text or "block" in text:
        return "blockwise"
    if "ds" in words or "delayed" in text:
        return "delayed"
    current = "cs" in words or "current" in text or tuned.scales_by_current_values(case)
    return "tensorwise" if current else "delayed"
