"""A run of Megatron-Bridge with a few stages of a pipeline, where these show what all do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from presim.composition.frameworks.megatron import FrameworkRun, fewest_repeating, training_overrides
from presim.composition.frameworks.megatron_recipes import PLAN_FIELDS
from presim.composition.graph.take import config_file
from presim.composition.launch_files.shapes import read_config
from presim.composition.plan import Plan

CAPTURED_STAGES = 4  # as `presim.composition.replan.replan_stages` needs
_DIVISIONS = (
    "layout",
    "account_for",
    "num_layers_in",
    "mtp",
    "model.num_layers",
)  # parts of fields that give stages layers of their own
_KINDS = ("first_k_dense_replace", "num_nextn_predict_layers", "use_sliding_window")  # of a config with other layers


def run_of_few_stages(run: FrameworkRun, model: str, plan: Plan, world_size: int) -> FrameworkRun | None:
    """The run with four stages that are like those of its plan; None: all stages have to be captured.

    All stages have to hold the same number of layers of one kind, and run 1F1B.
    """
    config = config_file(model)
    layers = None if config is None else _layers(read_config(config), plan, world_size, run.arguments)
    if layers is None:
        return None
    short_plan = msgspec.structs.replace(plan, pipeline=CAPTURED_STAGES)
    samples = plan.micro_batch * plan.data(world_size)
    captured = min(run.step_micro_batches, fewest_repeating(short_plan))
    replaced = {
        f"{PLAN_FIELDS['pipeline']}={plan.pipeline}",
        *training_overrides(plan, run.captured_micro_batches, samples),
    }
    source, *arguments = (argument for argument in run.arguments if argument not in replaced)
    added = (
        f"{PLAN_FIELDS['pipeline']}={CAPTURED_STAGES}",
        f"model.num_layers={layers}",
        *training_overrides(short_plan, captured, samples),
    )
    return dataclasses.replace(
        run,
        arguments=(source, *added, *arguments),
        captured_micro_batches=captured,
        captured_stages=CAPTURED_STAGES,
    )


def _layers(config: Mapping[str, Any], plan: Plan, world_size: int, arguments: Sequence[str]) -> int | None:
    """Layers of a model with four stages that are like those of a plan; None: no four stages are."""
    layers = equal_layers(config, arguments)
    if layers is None or layers % plan.pipeline:
        return None
    if plan.pipeline <= CAPTURED_STAGES or plan.virtual > 1 or plan.micro_batches(world_size) < plan.pipeline:
        return None
    return layers // plan.pipeline * CAPTURED_STAGES


def equal_layers(config: Mapping[str, Any], arguments: Sequence[str]) -> int | None:
    """The number of layers, which are of one kind; None: they are not."""
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int):
        return None
    fields = (argument.partition("=")[0] for argument in arguments)
    if any(division in field for field in fields for division in _DIVISIONS):
        return None
    kinds = [value for value in config.values() if isinstance(value, list) and len(value) == layers]
    if any(len(set(map(str, kind))) > 1 for kind in kinds) or any(config.get(name) for name in _KINDS):
        return None
    return layers
