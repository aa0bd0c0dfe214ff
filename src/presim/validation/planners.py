"""Which recipe builds which case: one planner a family of frameworks, found by the words of the case."""

from __future__ import annotations

from presim.validation.cases import CannotBuildError, Case
from presim.validation.megatron_family.planner import plan_megatron
from presim.validation.plan import Plan, Planner
from presim.validation.plans.borrowed import plan_automodel, plan_torchtune
from presim.validation.plans.litgpt import plan_litgpt
from presim.validation.plans.mosaic import plan_mosaic
from presim.validation.plans.single_gpu import plan_single_gpu
from presim.validation.plans.torchtitan import plan_torchtitan

_PLANNERS: tuple[tuple[tuple[str, ...], Planner], ...] = (
    (("torchtitan",), plan_torchtitan),
    (("llm-foundry", "composer"), plan_mosaic),
    (("automodel",), plan_automodel),
    (("torchtune",), plan_torchtune),
    (("litgpt", "lit-gpt"), plan_litgpt),
    (("megatron", "nemo", "nvidia release", "ngc", "nvidia pytorch"), plan_megatron),
    (("hf transformers", "hugging face"), plan_single_gpu),
)


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
