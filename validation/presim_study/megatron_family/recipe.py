"""Which of the recipes builds a case of Megatron's family, with the arguments that it alone takes."""

from __future__ import annotations

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family import (
    encoders,
    finetuning,
    functional_tests,
    hybrids,
    mlperf,
    tuned,
    tuned_experts,
    variants,
)
from presim_study.megatron_family.fields import is_deepspeed_s, is_sharded, keeps_mxfp8_alone
from presim_study.models import published_key, published_shapes
from presim_study.plan import cluster_of, options

_RECIPE = "megatron_gpt.py"
_OTHER_FAMILIES = {  # words of a model's name -> what it is
    **dict.fromkeys(("bert", "t5"), "an encoder outside Megatron-LM's own tests"),
    **dict.fromkeys(("mimo", "llava"), "a model of images and text"),
    **dict.fromkeys(("hybrid", "mamba", "nemotron"), "a hybrid whose layers are neither given nor known here"),
    "grpo": "reinforcement learning, whose steps generate and score, too",
    "diffusion": "a diffusion model",
}


def refuse_other_families(case: Case, recipe: str) -> None:
    """What cannot be built whatever else is said comes first."""
    if recipe in hybrids.RECIPES:
        return
    name = case.text("model").lower()
    family = next((word_of for word, word_of in _OTHER_FAMILIES.items() if word in name), None)
    if family and recipe != encoders.RECIPE and published_key(case) is None:
        raise CannotBuildError(f"the recipe builds decoders, and the case's {case.text('model')!r} is {family}")
    published_shapes(case)


def recipe_of(case: Case) -> tuple[str, tuple[str, ...]]:
    """The recipe that builds the case's kind of model, and its own arguments."""
    if encoders.family(case):
        return encoders.RECIPE, encoders.arguments(case)
    chip = cluster_of(case).gpu.id
    if hybrid := hybrids.recipe_of(case, chip):
        return hybrid
    if own := variants.arguments(case):
        steps = ("--tests", *functional_tests.arguments(case)) if functional_tests.is_one(case) else ()
        return variants.RECIPE, (*own, *steps)
    pieces = options(pieces=finetuning.packed(case) or None)
    if keeps_mxfp8_alone(case, chip):
        return "megatron_mxfp8.py", pieces
    if pieces:
        return "megatron_half_state.py" if finetuning.halves_state(case) else "megatron_packed.py", pieces
    if tuned_experts.fuses_experts(case, chip):
        return "megatron_fused_experts.py", ()
    if is_sharded(case) and tuned.defers_memory(case):
        return "megatron_deferred.py", ()
    if mlperf.drops_transposes(case):
        return "megatron_untransposed.py", ()
    if functional_tests.is_one(case):
        return functional_tests.RECIPE, functional_tests.arguments(case)
    if is_deepspeed_s(case):
        return "megatron_scripted.py", ()
    return _RECIPE, ()
