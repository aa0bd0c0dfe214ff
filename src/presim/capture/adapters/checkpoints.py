"""PyTorch's distributed checkpoints, saved in a world of which only some ranks run.

The plans that absent ranks would send are copies of those that stand for them. They must not share tensors out among
them, nor add up to whole tensors: each rank that runs writes all that it holds, and the copies nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from presim.capture.script.after_import import when_imported


def install() -> None:
    """Where ranks are absent."""
    when_imported("torch.distributed.checkpoint.default_planner", _take_plans_as_they_are)


def _take_plans_as_they_are(module: Any) -> None:
    returns_errors = "list" in str(module._validate_global_plan.__annotations__["return"])  # since PyTorch 2.14
    module._validate_global_plan = lambda *args, **kwargs: [] if returns_errors else True  # True: all is well
    deduplicate = module.dedup_save_plans
    module.dedup_save_plans = lambda plans, *args, **kwargs: deduplicate(_once(plans), *args, **kwargs)


def _once(plans: Sequence[Any]) -> list[Any]:
    """The plans, those that repeat an earlier one without items."""
    seen: list[Any] = []
    found = []
    for plan in plans:
        is_copy = plan.items in seen
        seen += [] if is_copy else [plan.items]
        found.append(dataclasses.replace(plan, items=[]) if is_copy else plan)
    return found
