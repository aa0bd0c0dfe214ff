"""Let PyTorch save distributed checkpoints in a world in which only some ranks run.

The plans received for absent ranks are copies of their representatives' plans. They must not divide tensors between
them or be checked for completeness: each rank that runs writes all that it holds, and the copies write nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from presim.capture.script.after_import import when_imported


def install() -> None:
    """Install if some ranks are absent."""
    when_imported("torch.distributed.checkpoint.default_planner", _accept_plans)


def _accept_plans(module: Any) -> None:
    returns_errors = "list" in str(module._validate_global_plan.__annotations__["return"])  # since PyTorch 2.14
    module._validate_global_plan = lambda *args, **kwargs: [] if returns_errors else True  # True: valid
    deduplicate = module.dedup_save_plans
    module.dedup_save_plans = lambda plans, *args, **kwargs: deduplicate(_without_copies(plans), *args, **kwargs)


def _without_copies(plans: Sequence[Any]) -> list[Any]:
    """The plans, without the items of those that repeat an earlier one."""
    seen: list[Any] = []
    plans_without_copies = []
    for plan in plans:
        is_copy = plan.items in seen
        seen += [] if is_copy else [plan.items]
        plans_without_copies.append(dataclasses.replace(plan, items=[]) if is_copy else plan)
    return plans_without_copies
