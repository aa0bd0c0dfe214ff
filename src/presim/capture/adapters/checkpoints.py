"""PyTorch's distributed checkpoints, saved in a world of which only some ranks run.

The plans that absent ranks would send are copies of this rank's. They must not share its tensors out among them, nor
add up to whole tensors: each rank that runs writes all that it holds.
"""

from __future__ import annotations

from typing import Any

from presim.capture.script.after_import import when_imported


def install() -> None:
    """Where ranks are absent."""
    when_imported("torch.distributed.checkpoint.default_planner", _take_plans_as_they_are)


def _take_plans_as_they_are(module: Any) -> None:
    returns_errors = "list" in str(module._validate_global_plan.__annotations__["return"])  # since PyTorch 2.14
    module._validate_global_plan = lambda *args, **kwargs: [] if returns_errors else True  # True: all is well
    module.dedup_save_plans = lambda plans, *args, **kwargs: plans
