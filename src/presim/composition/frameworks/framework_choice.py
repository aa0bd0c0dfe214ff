"""Which framework's program answers for a plan that names none."""

from __future__ import annotations

from collections.abc import Collection

from presim.composition.plan import Plan

FRAMEWORKS = ("megatron", "torchtitan", "hf", "deepspeed")
EAGER = "eager"  # composed from a graph of the model's own eager layers


def framework_needed(plan: Plan, named_fields: Collection[str]) -> str:
    """The framework that trains by such a plan: ``megatron``, or ``eager`` for the model's own layers.

    Two of tensor, pipeline and expert parallelism together are Megatron's, and so is its distributed optimizer. Other
    plans are those of PyTorch's own FSDP2 and DDP, which change nothing in a model's layers.
    """
    splits = sum(degree > 1 for degree in (plan.tensor, plan.pipeline, plan.expert))
    has_its_optimizer = "data_style" in named_fields and plan.data_style == "zero1"
    return "megatron" if splits > 1 or has_its_optimizer else EAGER
